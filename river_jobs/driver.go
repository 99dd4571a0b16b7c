package riverjobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"sexton/internal/database"
)

// River's topics, and the name that stands for all queues.
const (
	insertTopic     = "river_insert"
	controlTopic    = "river_control"
	leadershipTopic = "river_leadership"
	allQueues       = "*"
)

const (
	// pauseLook is how often pauses are read, pauseAnswer how long that may take: the listener hears nothing meanwhile.
	pauseLook   = 2 * time.Second
	pauseAnswer = 2 * time.Second
)

// driver is River's, except that its listener hears of inserted jobs alone. Every role that may connect may notify: one made-up
// notification paused all workers for ever, others cancelled jobs or had the leader resign. What River
// believes comes from its tables, which take a grant: a pause is read from there and told in the place of the notification, River
// itself looks every minute for jobs whose cancelling was asked for. Where the table has no leader, as after a clean stop, River is told
// that the leader has resigned; it would look by itself every 5 s.
type driver struct {
	*riverpgxv5.Driver

	jobs   database.Database
	queues []string
	log    *slog.Logger
	// own are the queues whose jobs work with definitions, with the keys of their leases and the digests: a worker fetches no job of a
	// queue for which others are installed, as it could only turn it away from a worker that has them.
	own struct{ queues, keys, digests []string }
	// said is when it was last logged of a queue.
	said map[string]time.Time
	// ahead is by how much this machine's clock was ahead of the server's at the last look.
	ahead atomic.Int64
}

func (d *driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{Listener: d.Driver.GetListener(params), driver: d}
}

// listener is used by one goroutine at a time, as River's is.
type listener struct {
	riverdriver.Listener

	driver *driver
	// look is when pauses are read next, told what River is still to be told of the last look.
	look time.Time
	told []*riverdriver.Notification
}

func (l *listener) Listen(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	return l.Listener.Listen(ctx, topic) //nolint:wrapcheck // River words it
}

func (l *listener) Unlisten(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	return l.Listener.Unlisten(ctx, topic) //nolint:wrapcheck // River words it
}

// WaitForNotification returns what was inserted, or whether queues are paused.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	for {
		if len(l.told) > 0 {
			next := l.told[0]
			l.told = l.told[1:]
			return next, nil
		}
		waiting, cancel := context.WithDeadline(ctx, l.look)
		heard, err := l.Listener.WaitForNotification(waiting)
		over := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return heard, nil
		case !over:
			return nil, err //nolint:wrapcheck // River words it
		}
		l.readPauses(ctx)
	}
}

// setGenerations fills in own.
func (d *driver) setGenerations(generations []Generation) {
	d.said = map[string]time.Time{}
	for _, g := range generations {
		for _, queue := range g.Kinds {
			for _, key := range g.Keys {
				d.own.queues, d.own.keys, d.own.digests = append(d.own.queues, queue), append(d.own.keys, key), append(d.own.digests, g.Digest)
			}
		}
	}
}

const pausesSQL = `
SELECT wanted.name,
    EXISTS (SELECT FROM "sexton".river_queue AS queue WHERE queue.name OPERATOR(pg_catalog.=) wanted.name AND queue.paused_at IS NOT NULL),
    EXISTS (SELECT FROM "sexton".river_leader AS leader WHERE leader.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()),
    EXISTS (
        SELECT FROM ROWS FROM (
            pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[])
        ) AS own (queue, key, digest)
        JOIN "sexton".fences AS fence ON fence.key OPERATOR(pg_catalog.=) own.key
        WHERE own.queue OPERATOR(pg_catalog.=) wanted.name AND fence.digest OPERATOR(pg_catalog.<>) own.digest
    ),
    EXISTS (
        SELECT FROM "sexton".river_job AS job
        WHERE job.state OPERATOR(pg_catalog.=) 'available' AND job.queue OPERATOR(pg_catalog.=) wanted.name
          AND job.scheduled_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
    ),
    pg_catalog.clock_timestamp()
FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (name)`

// readPauses tells River the state of all queues each time, whether it has changed or not: a queue that begins just now would miss the change.
// It also tells of jobs that wait to be fetched: their notification was lost, or they were snoozed for less than River's scheduler looks after.
// So River itself polls rarely.
func (l *listener) readPauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pauseAnswer)
	defer cancel()
	l.look = time.Now().Add(pauseLook)
	var name string
	var paused, led, outdated, waiting, some bool
	var clock time.Time
	states, own := map[string]bool{}, l.driver.own
	rows, err := l.driver.jobs.Async().Query(ctx, l.driver.jobs.Names.Render(pausesSQL), l.driver.queues, own.queues, own.keys, own.digests)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&name, &paused, &led, &outdated, &waiting, &clock}, func() error {
			l.driver.ahead.Store(int64(time.Now().Round(0).Sub(clock)))
			if waiting && !paused && !outdated {
				l.told = append(l.told, &riverdriver.Notification{Topic: insertTopic, Payload: fmt.Sprintf(`{"queue":%q}`, name)})
			}
			states[name], some = paused || outdated, some || paused || outdated
			l.driver.noteOutdated(ctx, name, outdated)
			return nil
		})
	}
	if err != nil {
		if ctx.Err() == nil {
			l.driver.log.WarnContext(ctx, "pauses cannot be read; they stay as they were", "error", err)
		}
		return
	}
	if !some {
		states = map[string]bool{allQueues: false}
	}
	for queue, paused := range states {
		l.told = append(l.told, control(queue, paused))
	}
	if !led {
		l.told = append(l.told, &riverdriver.Notification{Topic: leadershipTopic, Payload: `{"action":"resigned","leader_id":""}`})
	}
}

// noteOutdated says once a minute that a queue is left to workers with other definitions, and that it no longer is.
func (d *driver) noteOutdated(ctx context.Context, queue string, outdated bool) {
	said, known := d.said[queue]
	switch {
	case outdated && time.Since(said) >= time.Minute:
		d.said[queue] = time.Now()
		d.log.ErrorContext(ctx, "other definitions are installed: the job waits", "kind", queue, "database", d.jobs.Name,
			"error", "let this worker read the files that were installed, or run `sexton triggers install` with its own")
	case !outdated && known:
		delete(d.said, queue)
		d.log.InfoContext(ctx, "the installed definitions are this worker's again: the job goes on", "kind", queue, "database", d.jobs.Name)
	}
}

// control is River's own notification of a queue that is paused or resumed. The names of queues are those of kinds.
func control(queue string, paused bool) *riverdriver.Notification {
	action := "resume"
	if paused {
		action = "pause"
	}
	return &riverdriver.Notification{Topic: controlTopic, Payload: fmt.Sprintf(`{"action":%q,"queue":%q}`, action, queue)}
}
