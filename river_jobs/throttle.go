package riverjobs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/replica"
)

// askTimeout bounds a question on another connection. A pool that has none to spare must not hold up a pass.
const askTimeout = time.Second

// throttle makes one pass wait for others and says so in the log, once for each whom it waits for.
type throttle struct {
	db      database.Database
	session *batch.Session
	limits  replica.Limits
	log     *slog.Logger
	// hidden tells whether it is the first time in this process that the replicas' state is hidden.
	hidden func() bool

	// blind is set when the replicas could not be asked: the rest of the pass goes on without.
	blind   bool
	replica string
	blocker string
}

// newThrottle returns the throttle of a pass. Replicas count for the pace adaptive alone.
func newThrottle(deps Deps, pace config.Pace, db database.Database, session *batch.Session) *throttle {
	t := &throttle{
		db: db, session: session, log: deps.Logger.With("kind", LooseForeignKeys, "database", db.Name),
		hidden: func() bool { return deps.Bindings.first("hidden replicas of " + db.Name) },
	}
	if pace == config.Adaptive {
		settings := deps.Config.LooseForeignKeys
		t.limits = replica.Limits{Lag: settings.ReplicaLag, Bytes: int64(settings.ReplicaLagBytes)}
	}
	return t
}

// hooks are what the engine asks.
func (t *throttle) hooks() loosefk.Throttle {
	hooks := loosefk.Throttle{Blocker: t.blockedBy}
	if t.limits.On() {
		hooks.Hold = t.hold
	}
	return hooks
}

// hold says which replica is too far behind. Where that cannot be told, nobody waits.
func (t *throttle) hold(ctx context.Context) string {
	if t.blind {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	replicas, err := replica.Read(ctx, t.db.Pool)
	if err != nil {
		t.blind = true
		if !errors.Is(err, replica.ErrHidden) || t.hidden() {
			t.log.WarnContext(ctx, "pass does not wait for replicas", "error", err)
		}
		return ""
	}
	worst, behind := t.limits.Worst(replicas)
	if !behind {
		t.replica = ""
		return ""
	}
	reason := t.limits.Describe(worst)
	if worst.Name != t.replica {
		t.replica = worst.Name
		t.log.InfoContext(ctx, "pass waits", "reason", reason)
	}
	return reason
}

// blockedBy says whom a batch waits for. A question that is on its way when the batch ends is not broken off, which would cost its
// connection.
func (t *throttle) blockedBy(ctx context.Context) string {
	conn, err := t.db.Pool.Acquire(ctx)
	if err != nil {
		return "" // The batch has ended, or will say itself what is wrong with the server.
	}
	defer conn.Release()
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	reason, err := t.session.Blocker(asking, conn)
	if err != nil {
		t.log.DebugContext(ctx, "blocker is unknown", "error", err)
		return ""
	}
	if reason != "" && reason != t.blocker && ctx.Err() == nil {
		t.blocker = reason
		t.log.InfoContext(ctx, "pass waits", "reason", reason)
	}
	return reason
}

// reporter hands on the statistics of a running pass: at once where what it waits for has changed.
func reporter(progress jobrun.Progress) func(context.Context, *loosefk.Stats) {
	said := ""
	return func(ctx context.Context, stats *loosefk.Stats) {
		changed := stats.WaitingFor != said
		said = stats.WaitingFor
		progress(ctx, stats, changed)
	}
}
