"""Independent labels: each is there or not by itself, with probability sigmoid(z_k); measured and fitted one by one."""
