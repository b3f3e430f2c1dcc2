"""The list of pages. Streamlit runs this file as a script at every interaction; everything else is imported."""

import streamlit as st

from calibrant.dashboard.pages import navigation
from calibrant.dashboard.theme import STYLE

st.set_page_config(page_title="Calibrant", layout="wide", initial_sidebar_state="collapsed")
st.html(STYLE)
navigation().run()
