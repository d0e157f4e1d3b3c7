# SPDX-License-Identifier: Apache-2.0
# Put in front of every hostile shell program; see verdict.py.
VERDICT_COUNT=0
report() {
    VERDICT_COUNT=$((VERDICT_COUNT + 1))
    echo "$VERDICT_TOKEN $1 $2"
}
dump() {
    echo "$VERDICT_TOKEN dump:$1 $(od -An -v -tx1 | tr -d ' \n')"
}
end() {
    echo "$VERDICT_TOKEN end $VERDICT_COUNT"
}
