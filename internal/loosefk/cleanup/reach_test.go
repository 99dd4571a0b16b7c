package cleanup

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutages(t *testing.T) {
	t.Parallel()
	var o outages
	_, early := o.lookup("ci")
	require.False(t, early)
	require.True(t, o.record("ci", errors.New("first")), "a failure after a success")
	require.False(t, o.record("ci", errors.New("second")), "a failure after a failure")
	found, early := o.lookup("ci")
	require.True(t, early, "the last attempt was a moment ago")
	require.EqualError(t, found.err, "second")
	found.tried = found.tried.Add(-2 * reachAgain)
	o.known["ci"] = found
	_, early = o.lookup("ci")
	require.False(t, early)
	require.True(t, o.record("ci", nil), "a success after a failure")
	require.False(t, o.record("ci", nil))
}
