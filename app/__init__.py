"""The web application: chat, dashboard and API around one served population. Run it with ``popserve serve``."""
