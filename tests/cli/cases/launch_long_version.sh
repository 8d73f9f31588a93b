# exit: 0
# stdout: started
# An mpirun whose --version is longer than what is read of it, and that is slow to tell it.
cat >mpirun <<'END'
#!/bin/sh
if [ "$1" = --version ]; then
    echo "HYDRA build details:"
    sleep 0.3
    i=0
    while [ $i -lt 200 ]; do
        echo "a line of the configuration that is of no use here"
        i=$((i + 1))
    done
    exit 0
fi
echo started
END
chmod +x mpirun
octet launch -n 2 --mpirun ./mpirun -- train train.yaml 2>/dev/null
