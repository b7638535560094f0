"""Speech: who turns it into text, and how that text becomes subtitles."""
