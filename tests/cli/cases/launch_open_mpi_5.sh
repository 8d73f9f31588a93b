# exit: 0
# stdout: run -n 2 --oversubscribe --bind-to none *octet train train.yaml
# Open MPI 5 knows no --quiet; Open MPI 4 gets it.
cat >mpirun <<'END'
#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) ${number:-5.0.7}" || echo run "$@"
END
chmod +x mpirun
octet launch -n 2 --mpirun ./mpirun -- train train.yaml 2>/dev/null
number=4.1.4 octet launch -n 2 --mpirun ./mpirun -- train train.yaml 2>/dev/null >four
grep -q -e '--bind-to none --quiet ' four
