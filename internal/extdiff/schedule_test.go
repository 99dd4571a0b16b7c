package extdiff_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

// schedule runs the scheduler once and returns the diffs that it handed on.
func (b *bundle) schedule(t *testing.T, rule extdiff.Rule, limit int) (*extdiff.Schedule, []int64) {
	ids := []int64{}
	s, end := b.scheduler(t, rule, limit, func(_ context.Context, _ pgx.Tx, found []int64, _ time.Duration) (int, error) {
		ids = append(ids, found...)
		return len(found), nil
	})
	stats := pgtest.Must(s.Run(t.Context()))(t)
	end()
	return stats, ids
}

func (b *bundle) scheduler(t *testing.T, rule extdiff.Rule, limit int, insert func(context.Context, pgx.Tx, []int64, time.Duration) (int, error)) (*extdiff.Scheduler, func()) {
	session, end := b.Session(t, "schedule_migrate_external_diffs_worker")
	return &extdiff.Scheduler{Conn: session.Conn, Names: dbtest.Names(), Fence: session.Fence, Rule: rule, Limit: limit, Insert: insert}, end
}

func (b *bundle) anotherRound() {
	b.Exec("UPDATE sexton.external_diff_cursors SET round_began_at = now() - interval '1 hour'")
}

func (b *bundle) isDue(t *testing.T, rule extdiff.Rule) bool {
	condition := rule.DueSQL()
	return pgtest.Scalar[bool](t, b.Database, dbtest.Names().Render("SELECT "+extdiff.RemovalDueSQL+" OR "+condition))
}

func TestScheduleGoesRoundAndRound(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	require.False(t, b.isDue(t, extdiff.Always))
	for id := int64(1); id <= 10; id++ {
		b.add(id, file{path: "a", text: new("a")})
	}
	b.Exec("UPDATE merge_request_diffs SET files_count = 0 WHERE id = 3")
	b.Exec("UPDATE merge_request_diffs SET files_count = NULL WHERE id = 4")
	b.Exec("UPDATE merge_request_diffs SET stored_externally = true WHERE id = 5")
	b.Exec("UPDATE merge_request_diffs SET stored_externally = false WHERE id = 6")
	require.True(t, b.isDue(t, extdiff.Always))

	stats, ids := b.schedule(t, extdiff.Always, 5)
	require.Equal(t, []int64{1, 2, 6, 7, 8}, ids)
	require.True(t, stats.OverLimit)
	stats, ids = b.schedule(t, extdiff.Always, 5)
	require.Equal(t, []int64{9, 10}, ids, "refused ids hold up nobody")
	require.False(t, stats.OverLimit)
	_, ids = b.schedule(t, extdiff.Always, 5)
	require.Empty(t, ids, "the round is over")
	require.False(t, b.isDue(t, extdiff.Always), "what was handed on is due no more, moved or not")
	b.add(11, file{path: "a", text: new("a")})
	require.True(t, b.isDue(t, extdiff.Always))
	_, ids = b.schedule(t, extdiff.Always, 5)
	require.Equal(t, []int64{11}, ids)

	b.anotherRound()
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{1, 2, 6, 7, 8, 9, 10, 11}, ids, "each once")
	b.anotherRound()
	b.add(12, file{path: "a", text: new("a")})
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{12}, ids)
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{1, 2, 6, 7, 8, 9, 10, 11, 12}, ids, "new ones do not keep it from the old ones")
}

func TestScheduleForgetsWhatItCouldNotHandOn(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")})
	full := errors.New("the queue is full")
	s, end := b.scheduler(t, extdiff.Always, 0, func(context.Context, pgx.Tx, []int64, time.Duration) (int, error) { return 0, full })
	_, err := s.Run(t.Context())
	require.ErrorIs(t, err, full)
	end()
	require.True(t, b.isDue(t, extdiff.Always))
	_, ids := b.schedule(t, extdiff.Always, 0)
	require.Equal(t, []int64{1}, ids)
}

func TestScheduleWithALostLeaseHandsOnNothing(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")})
	s, _ := b.scheduler(t, extdiff.Always, 0, func(context.Context, pgx.Tx, []int64, time.Duration) (int, error) {
		return 0, errors.New("it was asked all the same")
	})
	b.Exec("UPDATE sexton.fences SET token = token + 1")
	_, err := s.Run(t.Context())
	require.ErrorContains(t, err, "lease lost: schedule_migrate_external_diffs_worker")
}

// Few of many are due: a run looks at windows of them.
func TestScheduleFindsTheFewThatAreDue(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.Exec(`
		INSERT INTO merge_request_diffs (merge_request_id, project_id, files_count) SELECT 7, 1, 1 FROM generate_series(1, 7000);
		UPDATE merge_requests SET latest_merge_request_diff_id = 3;
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch, state_id) VALUES (8, 1, 'title', 'b', 'main', 3);
		INSERT INTO merge_request_metrics (merge_request_id, merged_at) VALUES (8, now() - interval '30 days');
		UPDATE merge_request_diffs SET merge_request_id = 8 WHERE id IN (2500, 6999)`)
	stats, ids := b.schedule(t, extdiff.Outdated, 1000)
	require.Equal(t, []int64{1, 2, 2500, 6999}, ids)
	require.EqualValues(t, 7000, stats.Looked)
	require.False(t, b.isDue(t, extdiff.Outdated))
}

// crew is as many diffs that are moved at once: diff 1 changes first, and does not commit before all others wait for that.
const crew = 6

// moveTogether moves the diffs 1 to crew by an engine, calls meanwhile while diff 1 holds its transaction open and the others wait for
// it, and returns the outcomes by diff.
func moveTogether(
	ctx context.Context, engine *extdiff.Engine, waitFor func(ready func() bool), meanwhile func(),
) (moved [crew + 1]extdiff.Moved, errs [crew + 1]error) {
	reached := engine.Reached
	var switched atomic.Int64
	first := make(chan struct{})
	engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointSwitched && switched.Add(1) == 1 {
			close(first)
			waitFor(func() bool { return engine.Switches.Waiting() == crew-1 })
			meanwhile()
		}
		if reached != nil {
			reached(p)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { moved[1], errs[1] = engine.Move(ctx, 1) })
	<-first
	for id := 2; id <= crew; id++ {
		all.Go(func() { moved[id], errs[id] = engine.Move(ctx, int64(id)) })
	}
	all.Wait()
	return moved, errs
}

func (b *bundle) waits(t *testing.T) func(ready func() bool) {
	return func(ready func() bool) {
		pgtest.WaitFor(t, "the others to be ready", func(context.Context) (bool, error) { return ready(), nil })
	}
}

// crewOf fills the diffs 1 to crew, each with another text.
func crewOf(t *testing.T) *bundle {
	b := inFolder(t)
	for id := int64(1); id <= crew; id++ {
		b.add(id, append(threeFiles(), file{path: "own", text: new(fmt.Sprint("text of ", id))})...)
	}
	return b
}

// transactions counts the transactions that the diffs, other than the first, were changed in.
const transactions = "SELECT count(DISTINCT xmin::text) FROM merge_request_diffs WHERE stored_externally AND id > 1"

func TestDiffsThatAreReadyChangeInOneTransaction(t *testing.T) {
	t.Parallel()
	b := crewOf(t)
	moved, errs := moveTogether(t.Context(), b.engine, b.waits(t), func() {})
	for id := int64(1); id <= crew; id++ {
		require.NoError(t, errs[id])
		require.Empty(t, moved[id].Skipped)
		require.Equal(t, fmt.Sprint("text of ", id), b.texts(t, id)["own"])
	}
	require.Equal(t, [][]string{{"1"}}, b.Rows(transactions))
	require.Equal(t, [][]string{{"6"}}, b.Rows("SELECT count(*) FROM sexton.external_diffs WHERE busy_until IS NULL AND octet_length(sha256) = 32"))
	require.Empty(t, b.verified(t, 0))
}

// What stands in the way of one stops no other. The one that comes alone waits for locks, and looks again at what has changed.
func TestADiffThatCannotChangeWithTheOthersStopsNone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// meanwhile happens to diff 3 after its object was read back.
		meanwhile func(t *testing.T, b *bundle)
		// skipped and err are what becomes of it, text is its own text in the end.
		skipped extdiff.Skip
		err     string
		text    string
	}{
		{name: "changed", text: "other", meanwhile: func(_ *testing.T, b *bundle) {
			b.Exec("UPDATE merge_request_diff_files SET diff = 'other' WHERE merge_request_diff_id = 3 AND old_path = 'own'")
		}},
		{name: "deleted", skipped: extdiff.Gone, meanwhile: func(_ *testing.T, b *bundle) { b.Exec("DELETE FROM merge_request_diffs WHERE id = 3") }},
		{name: "claim lost", text: "text of 3", meanwhile: func(_ *testing.T, b *bundle) {
			b.Exec("UPDATE sexton.external_diffs SET busy_until = now() - interval '1 second' WHERE diff_id = 3")
		}},
		{name: "refused by the application", err: "not this one", text: "text of 3", meanwhile: func(_ *testing.T, b *bundle) {
			b.Exec("INSERT INTO refused VALUES (3)")
		}},
		{name: "locked", text: "text of 3", meanwhile: func(t *testing.T, b *bundle) {
			t.Helper()
			other, err := b.Pool().Begin(t.Context())
			if err == nil {
				_, err = other.Exec(t.Context(), "SELECT FROM merge_request_diffs WHERE id = 3 FOR UPDATE")
			}
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				b.waitFor(t, "the others to be moved", "(SELECT count(*) FROM merge_request_diffs WHERE stored_externally) = 5")
				if err := other.Rollback(context.Background()); err != nil {
					t.Error(err)
				}
			}()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := crewOf(t)
			b.Exec(`CREATE TABLE refused (id bigint);
				CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF EXISTS (SELECT FROM public.refused WHERE id = NEW.id) THEN RAISE EXCEPTION 'not this one'; END IF;
					RETURN NEW;
				END $$;
				CREATE TRIGGER refuse BEFORE UPDATE ON merge_request_diffs FOR EACH ROW EXECUTE FUNCTION refuse()`)
			moved, errs := moveTogether(t.Context(), b.engine, b.waits(t), func() { test.meanwhile(t, b) })
			for id := int64(1); id <= crew; id++ {
				if id == 3 {
					continue
				}
				require.NoError(t, errs[id])
				require.Equal(t, "t", b.stored(id)[0][0])
				require.Equal(t, fmt.Sprint("text of ", id), b.texts(t, id)["own"])
			}
			if test.err != "" {
				require.ErrorContains(t, errs[3], test.err)
			} else {
				require.NoError(t, errs[3])
			}
			require.Equal(t, test.skipped, moved[3].Skipped)
			if test.text != "" {
				require.Equal(t, test.text, b.texts(t, 3)["own"])
			}
		})
	}
}

// A diff that is ready alone and has to wait for a lock does not keep those from changing that come after it.
func TestADiffThatWaitsAloneStopsNone(t *testing.T) {
	t.Parallel()
	b := crewOf(t)
	b.engine.Limits.Lock, b.engine.Limits.Statement = 10*time.Minute, 10*time.Minute
	var claims atomic.Int64
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointClaimed {
			claims.Add(1)
		}
	}
	tx := pgtest.Begin(t, b.Pool())
	pgtest.Exec(t, tx, "SELECT FROM merge_request_diff_files WHERE merge_request_diff_id = 1 FOR UPDATE")
	ended := make(chan error, 2)
	move := func(id int64) { _, err := b.engine.Move(t.Context(), id); ended <- err }
	go move(1)
	b.waitFor(t, "diff 1 to wait", "EXISTS (SELECT FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"+
		" OR EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	go move(2)
	b.waitFor(t, "diff 2 to be moved", "EXISTS (SELECT FROM merge_request_diffs WHERE id = 2 AND stored_externally)")
	require.EqualValues(t, 2, claims.Load(), "diff 1 still has its first one")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.Equal(t, "t", b.stored(1)[0][0])
}

// One object that does not read back as it was written leaves its diff in the database, and no other.
func TestAWrongObjectAmongSeveralStopsItsDiffAlone(t *testing.T) {
	t.Parallel()
	b := crewOf(t)
	wrong := b.newEngine(t, "wrong")
	wrong.Switches = b.engine.Switches
	wrong.Reached = func(p extdiff.Point) {
		if p == extdiff.PointUploaded {
			b.spoil(t, "merge_request_diffs/mr-7/diff-7", strings.Repeat("x", 10))
		}
	}
	b.add(crew+1, threeFiles()...)
	_, errs := moveTogether(t.Context(), b.engine, b.waits(t), func() {
		_, err := wrong.Move(t.Context(), crew+1)
		if err == nil || !strings.Contains(err.Error(), "back: it has 10 bytes") {
			t.Errorf("a wrong object was taken for right: %v", err)
		}
	})
	require.NoError(t, errors.Join(errs[:]...))
	require.Equal(t, [][]string{{"1"}}, b.Rows(transactions))
	require.Equal(t, [][]string{{"NULL", "NULL", "1"}}, b.stored(crew+1))
}

// A worker that is killed with a transaction of several open has changed none of them. All move afterwards.
func TestKilledWhileSeveralChange(t *testing.T) {
	t.Parallel()
	b := crewOf(t)
	b.kill(t, "together", extdiff.PointSwitched)
	require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT id FROM merge_request_diffs WHERE stored_externally"))
	require.Len(t, b.dangling(t), crew-1, "objects that no diff names")
	b.expire()
	for id := int64(1); id <= crew; id++ {
		_ = b.move(t, id)
		require.Equal(t, "t", b.stored(id)[0][0])
		require.Equal(t, fmt.Sprint("text of ", id), b.texts(t, id)["own"])
	}
	require.Empty(t, b.verified(t, 0))
}

// victimTogether is a worker that moves several diffs, and kills itself when several have changed together.
func victimTogether(ctx context.Context, engine *extdiff.Engine) error {
	kill, switched := engine.Reached, 0
	engine.Switches = &extdiff.Switches{}
	engine.Reached = func(p extdiff.Point) {
		if p != extdiff.PointSwitched {
			return
		}
		if switched++; switched == crew {
			kill(p)
		}
	}
	_, errs := moveTogether(ctx, engine, func(ready func() bool) {
		for !ready() && ctx.Err() == nil {
			runtime.Gosched()
		}
	}, func() {})
	return errors.Join(errs[:]...)
}
