"""A page in headless Chromium, through Selenium.

    with browser.Browser() as chromium:
        chromium.open("report.html", width=1280, scheme="dark")

Needs the Debian packages chromium, chromium-driver and python3-selenium; missing() says which are
not installed.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None

# Bazel's PATH includes /usr/bin, where Debian and Ubuntu install both.
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


def missing():
    """A sentence on what is not installed, or None."""
    needed = {"chromium": CHROMIUM, "chromium-driver": DRIVER, "python3-selenium": webdriver}
    absent = [package for package, there in needed.items() if not there]
    if not absent:
        return None
    # A Python that is not Debian's does not see Debian's packages.
    where = "" if webdriver else f" for {sys.executable}; Debian's is for /usr/bin/python3"
    return f"not installed: {', '.join(absent)}{where}"


class Browser:
    """One window, for pages in local files."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="browser")
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        arguments = [
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--no-first-run",
            f"--user-data-dir={self._directory.name}/profile",
        ]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # Chromium's own sandbox does not start as root
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        home = dict(os.environ, HOME=self._directory.name)  # Bazel's tests have no writable home
        try:
            self.driver = webdriver.Chrome(service=Service(DRIVER, env=home), options=options)
        except Exception:
            self._directory.cleanup()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.driver.quit()
        self._directory.cleanup()

    def resize(self, width, height=900, scale=1):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False})

    def set_scheme(self, scheme):
        """`scheme` is the value of prefers-color-scheme, "light" or "dark"."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def open(self, path, width=1280, scheme="light", scale=1):
        self.driver.get("about:blank")
        self.console(), self.requests()  # drop those of the previous page
        self.resize(width, scale=scale)
        self.set_scheme(scheme)
        self.driver.get(pathlib.Path(path).absolute().as_uri())

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_elements("css selector", selector)

    def count(self, selector):
        return len(self.find(selector))

    def console(self):
        """Errors and warnings on the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self):
        """Addresses requested since the last call, except files and data in the page itself."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        addresses = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [address for address in addresses if not address.startswith(("file:", "data:", "about:"))]
