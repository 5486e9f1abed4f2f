# shellcheck shell=sh
# To be sourced. Finds missing packages and installs them on Debian and Ubuntu; on other systems it
# says what to install. Set `program` first: messages begin with it.

say() { echo "${program:?}: $*" >&2; }

# missing_packages TABLE: prints the packages of TABLE that this machine lacks, each after a space.
# A line of TABLE is a package and a file; if the file exists, the package is not missing, however
# the file was installed.
missing_packages() {
  echo "$1" | while read -r package file; do
    [ -z "$package" ] || [ -e "$file" ] || [ -e "/usr/local${file#/usr}" ] || printf ' %s' "$package"
  done
}

# Runs apt-get without questions. Waits if another apt-get is running, and shows the output only on
# failure.
apt_get() {
  say "  apt-get $*"
  log=$(mktemp)
  status=0
  $root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
    apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

# install_packages PACKAGES (a list of words): returns 1 on failure, with the reason on stderr.
install_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    say "this system has no apt-get. Please install the contents of these Debian packages:$1"
    return 1
  fi
  root=
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "missing:$1. As root: apt-get install --no-install-recommends$1"
      return 1
    fi
    root=sudo
  fi
  say "not on this machine yet:$1. Installing${root:+ through sudo}, as root:"
  apt_get update || say "apt-get update failed; continuing with the present package lists"
  for package in $1; do
    candidate=$(LC_ALL=C apt-cache policy "$package" 2>/dev/null | sed -n 's/^ *Candidate: //p')
    case $candidate in
      "" | "(none)")
        say "this system's package lists have no $package"
        return 1
        ;;
    esac
  done
  # shellcheck disable=SC2086 # a list of words
  apt_get install --no-install-recommends $1
}
