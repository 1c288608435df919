"""Names and icons for the apps of synthetic phones, and icons for those of real logs."""

from __future__ import annotations

from typing import Any

NAMES = (
    ("Chat", "message-circle"), ("Browser", "globe"), ("Mail", "mail"), ("Camera", "camera"),
    ("Music", "music"), ("Maps", "map"), ("Calendar", "calendar"), ("Photos", "image"),
    ("Phone", "phone"), ("Clock", "clock"), ("Weather", "cloud-sun"), ("Shop", "shopping-bag"),
    ("Reader", "book-open"), ("Fitness", "dumbbell"), ("News", "newspaper"),
    ("Calculator", "calculator"), ("Notes", "notebook-pen"), ("Wallet", "wallet"), ("Rides", "car"),
    ("Trains", "train-front"), ("Travel", "plane"), ("Recipes", "utensils"), ("Films", "tv"),
    ("Games", "gamepad-2"), ("Recorder", "mic"), ("Video calls", "video"), ("Friends", "users"),
    ("Dating", "heart"), ("Documents", "file-text"), ("Search", "search"),
    ("Translator", "languages"), ("Podcasts", "podcast"), ("Cycling", "bike"), ("Sleep", "bed"),
    ("Reviews", "star"), ("Cafés", "coffee"), ("Lessons", "graduation-cap"), ("Jobs", "briefcase"),
    ("Repairs", "hammer"), ("Garden", "leaf"), ("Drawing", "palette"), ("Radio", "radio"),
    ("Baby log", "baby"), ("Pets", "dog"), ("Passwords", "key"), ("Home", "house"),
    ("Files", "folder"), ("Compass", "compass"),
)  # fmt: skip
"""The synthetic apps with their icons, the most common first."""

N_APPS = len(NAMES)

_WORDS = {
    "message-circle": ("whatsapp", "messag", "telegram", "signal", "sms", "chat", "viber"),
    "globe": ("chrome", "firefox", "browser", "safari", "edge", "opera"),
    "mail": ("mail", "gmail", "outlook", "inbox"),
    "camera": ("camera", "snapchat"),
    "music": ("music", "spotify", "sound"),
    "map": ("maps", "navi"),
    "calendar": ("calendar", "kalender"),
    "image": ("photo", "gallery", "instagram", "pinterest"),
    "phone": ("dialer", "phone", "incall", "contacts"),
    "clock": ("clock", "alarm"),
    "cloud-sun": ("weather", "wetter"),
    "shopping-bag": ("shop", "amazon", "ebay", "vending", "store"),
    "book-open": ("kindle", "book", "read"),
    "newspaper": ("news", "reddit", "twitter"),
    "calculator": ("calc",),
    "notebook-pen": ("note", "keep", "onenote"),
    "wallet": ("bank", "pay", "wallet"),
    "tv": ("youtube", "netflix", "tv", "video", "vlc"),
    "gamepad-2": ("game", "play"),
    "users": ("facebook", "linkedin", "social", "teams", "slack", "discord"),
    "file-text": ("word", "docs", "office", "pdf", "excel", "writer"),
    "search": ("search", "quicksearch"),
    "folder": ("files", "explorer", "drive", "dropbox"),
    "house": ("home",),
    "settings": ("settings",),
    "terminal": ("terminal", "konsole", "code", "studio"),
}
_KNOWN = {
    "com.google.android.gm": "Gmail",
    "com.google.android.youtube": "YouTube",
    "com.android.vending": "Play Store",
    "com.facebook.katana": "Facebook",
    "com.facebook.orca": "Messenger",
    "com.whatsapp": "WhatsApp",
    "com.zhiliaoapp.musically": "TikTok",
    "org.telegram.messenger": "Telegram",
    "org.thoughtcrime.securesms": "Signal",
    "com.microsoft.office.outlook": "Outlook",
    "com.apple.mobilesafari": "Safari",
    "com.apple.MobileSMS": "Messages",
}
ICONS = sorted({icon for _, icon in NAMES} | set(_WORDS))


def icon_for(app: str) -> str | None:
    """An icon for an app, guessed from its name; None if there is no match."""
    known = dict(NAMES).get(app)
    if known is not None:
        return known
    name = f"{app} {short_name(app)}".lower()
    return next((icon for icon, words in _WORDS.items() if any(w in name for w in words)), None)


def short_name(app: str) -> str:
    """The label of an app: the informative part of a package name.

    >>> short_name("com.android.chrome"), short_name("com.whatsapp"), short_name("My Maps")
    ('Chrome', 'WhatsApp', 'My Maps')
    """
    if app in _KNOWN:
        return _KNOWN[app]
    parts = app.split(".")
    is_package = len(parts) >= 3 or (len(parts) == 2 and app.islower())
    if not is_package or " " in app:
        return app
    dull = {"android", "app", "apps", "mobile", "client", "main", "google", "katana", "lite"}
    telling = [part for part in parts[1:] if part.lower() not in dull] or parts[-1:]
    return telling[-1][:1].upper() + telling[-1][1:]


def app_entry(app: str) -> dict[str, Any]:
    return {"app": app, "label": short_name(app), "icon": icon_for(app)}
