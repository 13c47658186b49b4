"""The settings of the shop: no database, one view, one command."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only for trying it out")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
ZHUMQ_BOOTSTRAP = os.environ.get("ZHUMQ_BOOTSTRAP", "127.0.0.1:9092")
