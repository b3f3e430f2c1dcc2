"""What the pages' short words mean, one touch away on any screen."""

from __future__ import annotations

import streamlit as st

WORDS = {
    "Confidence": "the probability that the model gives to its first guess: what it claims.",
    "Calibrated": "of the answers with a confidence of 80 %, 80 in 100 are right, and so for every confidence.",
    "ECE": "expected calibration error: the average distance between what the model claims and how often it is right. "
    "Chance makes it positive, so beside it stands what a calibrated model would show: *if calibrated*.",
    "NLL": "negative log-likelihood, natural logarithm: how little probability the truth got; lower is better.",
    "T": "temperature: divides the network's outputs before they become probabilities; above 1 makes it less sure.",
    "Calibrator": "a map fitted on labelled rows that makes confidences honest; it travels as calibrator.json.",
    "Prior": "how common each class is. A model carries that of its training set; where classes come in other shares "
    "its answers are moved by Bayes' rule (the adjustment).",
    "Rows": "labelled images, or whatever was classified: one line of a predictions file each.",
    "95 %": "an interval that holds the true value in 95 of 100 such samples.",
}


def offer() -> None:
    with st.popover("Words", icon=":material/menu_book:", type="tertiary", key="glossary"):
        for word, meaning in WORDS.items():
            st.markdown(f"**{word}**: {meaning}")
