# exit: 0
# Rank 0 prints, the others do not: what differs is what follows from their number.
octet train train.yaml --print-config >one
octet launch -n 2 -- train train.yaml --print-config >two
[ "$(grep -c . one)" = "$(grep -c . two)" ]
[ "$(diff one two | grep '^[<>]')" = "< # derived: gradient_accumulation_steps: 2
> # derived: gradient_accumulation_steps: 1" ]
