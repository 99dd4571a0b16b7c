package heartbeat_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// River's fetch has committed, and its answer was lost.
func TestJobsThatNoGoroutineWorksOnAreGivenBack(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	h := newHeart(t, db, "self")
	h.Interval = 5 * time.Millisecond
	log := record(h)
	worked := insert(t, db, job{clients: []string{"self"}, seconds: 60, attempt: 1})
	lost := insert(t, db, job{clients: []string{"self"}, seconds: 60, attempt: 1})
	young := insert(t, db, job{clients: []string{"self"}, attempt: 1})
	others := insert(t, db, job{clients: []string{"self", "other"}, seconds: 60, attempt: 1})
	enter(db, "other", 0)
	state := func(id int64) string {
		return pgtest.Scalar[string](t, db.Database, "SELECT state::text || ' ' || attempt FROM sexton.river_job WHERE id = $1", id)
	}
	given := func(id int64) {
		pgtest.WaitFor(t, "the job to be given back", func(context.Context) (bool, error) { return state(id) == "available 0", nil })
	}
	done := h.Work(worked)
	stop := run(t, h)
	given(lost)
	require.Equal(t, "running 1", state(worked))
	// The beat after this one counts the job as missed, the next one gives it back.
	done()
	given(worked)
	require.Equal(t, "running 1", state(young), "its goroutine may be on its way")
	require.Equal(t, "running 1", state(others), "another client has it")
	require.Contains(t, log.Messages(), "job reclaimed")
	stop()
}

func TestAJobIsMissedTwice(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	h := newHeart(t, db, "self")
	insert(t, db, job{clients: []string{"self"}, seconds: 60, attempt: 1})
	for _, want := range []string{"running", "available"} {
		require.NoError(t, h.Pulse().Next(t.Context()))
		require.Equal(t, [][]string{{want}}, db.Rows("SELECT state FROM sexton.river_job"))
	}
}
