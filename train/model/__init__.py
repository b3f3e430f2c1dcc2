"""Networks: any timm classifier as logits and the features that they are a function of."""
