#!/bin/sh
# Test on JAX and, at the same time, on TensorFlow and then torch, where they are installed: tests also wait for files,
# browsers and other processes. What no backend can change is tested on JAX only.
# $PYTHON is the interpreter; arguments go to pytest.
test_on() {
    backend=$1
    shift
    if ! "${PYTHON:-python}" -c "import $backend" 2>/dev/null; then
        echo "== $backend is not installed: skipped"
        return
    fi
    echo "== $backend"
    [ "$backend" = jax ] && chosen="not slow" || chosen="not slow and not any_backend"
    KERAS_BACKEND=$backend "${PYTHON:-python}" -m pytest -n auto --dist worksteal -m "$chosen" "$@" &
    tests=$!
    wait $tests
}

test_others() {
    trap 'kill $tests 2> /dev/null; exit 130' INT TERM HUP
    status=0
    test_on tensorflow "$@" || status=1
    test_on torch "$@" || status=1
    return $status
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
test_others "$@" > "$log" 2>&1 &
others=$!
trap 'kill $tests $others 2> /dev/null; exit 130' INT TERM HUP
status=0
test_on jax "$@" || status=1
wait $others || status=1
cat "$log"
exit $status
