# exit: 2
octet 2>help || { status=$?; grep -q 'octet train' help; exit "$status"; }
