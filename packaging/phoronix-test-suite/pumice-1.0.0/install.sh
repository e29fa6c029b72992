#!/bin/sh
# The suite runs this in the test's folder, where it has put what downloads.xml names: the archive of
# `make archive`. Without an archive the pumice that is installed is measured.
set -e
program=
for archive in pumice-*.tar.gz; do
  [ -e "$archive" ] || continue
  rm -rf pumice
  mkdir pumice
  tar -xzf "$archive" -C pumice --strip-components=1
  program=$PWD/pumice/bin/pumice
done
if [ -z "$program" ] && ! program=$(command -v pumice); then
  echo "pumice: neither its archive is here nor the program installed" >&2
  echo 2 >~/install-exit-status
  exit 2
fi

# The suite names the log file, and finds the result in it (results-definition.xml).
cat >pumice-bench <<EOF
#!/bin/sh
"$program" bench --pts "\$@" >"\$LOG_FILE" 2>&1
echo \$? >~/test-exit-status
EOF
chmod +x pumice-bench
echo 0 >~/install-exit-status
