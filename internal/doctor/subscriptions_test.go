package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/problem"
)

func TestSubscribedParentsAreNotRecorded(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	name := "sub_" + p.Name
	// Without a publisher to ask, the table is put into the subscription by hand.
	p.Exec("CREATE SUBSCRIPTION " + name + " CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE)")
	t.Cleanup(func() { p.Exec("DROP SUBSCRIPTION " + name) })
	require.Empty(t, p.findings("subscriptions"))
	p.Exec("INSERT INTO pg_subscription_rel SELECT oid, 'public.children'::regclass, 'r' FROM pg_subscription WHERE subname = $1", name)
	require.Empty(t, p.findings("subscriptions"), "children are nobody's business")
	p.Exec("INSERT INTO pg_subscription_rel SELECT oid, 'public.parents'::regclass, 'r' FROM pg_subscription WHERE subname = $1", name)
	p.as() // A worker's role may read no more of pg_subscription than its names.
	f := p.one("subscriptions")
	require.Equal(t, problem.Error, f.Severity)
	require.Equal(t, "public.parents", f.Object)
	require.Contains(t, f.Message, name)
}
