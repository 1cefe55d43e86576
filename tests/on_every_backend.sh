#!/bin/sh
# Test on JAX, and on TensorFlow and torch too where they are installed; what no backend can change is tested on JAX only.
# $PYTHON is the interpreter; arguments go to pytest.
status=0
for backend in jax tensorflow torch; do
    if "${PYTHON:-python}" -c "import $backend" 2>/dev/null; then
        echo "== $backend"
        [ $backend = jax ] && chosen="not slow" || chosen="not slow and not any_backend"
        KERAS_BACKEND=$backend "${PYTHON:-python}" -m pytest -n auto --dist worksteal -m "$chosen" "$@" || status=1
    else
        echo "== $backend is not installed: skipped"
    fi
done
exit $status
