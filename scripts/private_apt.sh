# Sourced by scripts that fetch Debian packages into folders of their own, without root and without a trace in this
# machine's apt.
# shellcheck shell=bash

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
architecture=$(dpkg --print-architecture 2>/dev/null || true)
mirror=
[[ -z $architecture ]] || mirror=$("$(dirname "${BASH_SOURCE[0]}")/debian_mirror.sh")

# Fails, and prints why, where there is nothing to fetch from.
why_no_private_apt() {
  if [[ -z $architecture ]]; then
    echo "needs apt and dpkg to fetch and unpack Debian packages"
  elif [[ -z $mirror ]]; then
    echo "no Debian mirror in apt's sources; set PUMICE_DEBIAN_MIRROR"
  elif [[ ! -e $keyring ]]; then
    echo "needs the package debian-archive-keyring"
  else
    return 0
  fi
  return 1
}

# private_apt FOLDER SUITE…: an apt with sources, lists and state of its own, through APT_CONFIG. A suite
# is of binary packages, source:SUITE of source packages. A mirror may be of a day in the past, whose
# signatures are verified like any. Ends the shell where there are no lists, so it is called in a subshell.
private_apt() {
  local folder=$1 suite
  shift
  mkdir -p "$folder/lists/partial" "$folder/archives/partial"
  : >"$folder/status"
  for suite in "$@"; do
    case $suite in
      source:*) echo "deb-src [signed-by=$keyring] $mirror ${suite#source:} main" ;;
      *) echo "deb [signed-by=$keyring] $mirror $suite main" ;;
    esac
  done >"$folder/sources.list"
  cat >"$folder/apt.conf" <<CONFIG
Dir::State "$folder"; Dir::State::lists "$folder/lists"; Dir::State::status "$folder/status";
Dir::Cache "$folder"; Dir::Cache::archives "$folder/archives";
Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";
Dir::Etc::SourceList "$folder/sources.list"; Dir::Etc::SourceParts "$folder/none";
Dir::Etc::Preferences "$folder/none"; Dir::Etc::PreferencesParts "$folder/none";
Dir::Etc::TrustedParts "$folder/none";
APT::Architecture "$architecture"; APT::Architectures { "$architecture"; };
APT::Install-Recommends "false"; APT::Sandbox::User ""; APT::Update::Error-Mode "any";
Acquire::Check-Valid-Until "false"; Acquire::Languages "none"; Acquire::Retries "2"; Acquire::http::Timeout "20"; Debug::NoLocking "1";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
CONFIG
  export APT_CONFIG=$folder/apt.conf
  apt-get -qq update || exit
}
