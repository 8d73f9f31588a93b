# exit: 2
# stderr: octet: *wrong layouts: found '2x', RANKSxTHREADS,... of at most 8 is required (--layouts)*
octet bench step train.yaml --layouts 2x
