package listen_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/listen"
)

// An application may ask for the same job in a transaction that it leaves open. The look must not fail for that, again and again.
func TestALookDoesNotWaitForOthersWhoAsk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(`CREATE FUNCTION ask() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(4711); RETURN 1; END $$`)
	p := newProbe(b)
	p.Timing.Answer, p.Lane.Ask = 2*time.Second, "public.ask"
	p.Lane.Due = func(ctx context.Context, on listen.Querier, _ bool) (due listen.Due, err error) {
		defer p.looks.Add(1)
		err = on.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+table+`) AS now, 1`).Scan(&due.Now, new(int))
		return due, err
	}
	p.awaitSleep()
	execute(t, b.connect(), "SELECT pg_advisory_lock(4711)")
	b.Exec(insert)
	b.requireDrained()
	require.Equal(t, int64(1), p.works.Load())
	require.Zero(t, p.logged("looking for work fails"))
}
