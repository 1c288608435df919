"""Launch logs: loading, synthetic phones, splits."""
