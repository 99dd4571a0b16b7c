package riverjobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"

	"sexton/internal/sleep"
)

// listener is used by one goroutine at a time, as River's is. River never learns that a connection is lost: it would wait longer with each loss
// in the life of the process, up to a minute, and look for nothing meanwhile.
type listener struct {
	riverdriver.Listener

	driver *driver
	// look is when pauses are read next, told what River is still to be told of the last look.
	look time.Time
	told []*riverdriver.Notification
	// listens is true while River wants to hear of inserted jobs, lost while there is no connection to hear on.
	listens, lost bool
}

// redial is the pause before a lost connection is dialled again.
const redial = time.Second

func (l *listener) Connect(ctx context.Context) error {
	return l.kept(ctx, l.Listener.Connect(ctx))
}

func (l *listener) Listen(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	if l.listens = true; l.lost {
		return nil
	}
	return l.kept(ctx, l.Listener.Listen(ctx, topic))
}

func (l *listener) Unlisten(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	if l.listens = false; l.lost {
		return nil
	}
	return l.kept(ctx, l.Listener.Unlisten(ctx, topic))
}

func (l *listener) Ping(ctx context.Context) error {
	if l.lost {
		return nil
	}
	return l.kept(ctx, l.Listener.Ping(ctx))
}

// kept gives the connection up on an error that is not the end of ctx, and leaves it to the next wait to dial again.
func (l *listener) kept(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	l.driver.log.WarnContext(ctx, "River's wake-up connection lost, dialling again; until then jobs are looked for every 2 s", "error", err)
	l.lost = true
	_ = l.Listener.Close(ctx) // How it ends tells nothing.
	return nil
}

// dial reports whether the lost connection is there again.
func (l *listener) dial(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pauseAnswer)
	defer cancel()
	err := l.Listener.Connect(ctx)
	if err == nil && l.listens {
		err = l.Listener.Listen(ctx, insertTopic)
	}
	if err != nil {
		_ = l.Listener.Close(ctx)
		return false
	}
	l.look = time.Time{} // For what came meanwhile.
	return true
}

// WaitForNotification returns what was inserted, or whether queues are paused.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	for {
		switch {
		case len(l.told) > 0:
			next := l.told[0]
			l.told = l.told[1:]
			return next, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !time.Now().Before(l.look):
			l.readPauses(ctx)
			continue
		case l.lost:
			if l.lost = !l.dial(ctx); l.lost {
				_ = sleep.For(ctx, redial)
			}
			continue
		}
		waiting, cancel := context.WithDeadline(ctx, l.look)
		heard, err := l.Listener.WaitForNotification(waiting)
		over := waiting.Err() != nil
		cancel()
		if err == nil {
			return heard, nil
		}
		if !over {
			_ = l.kept(ctx, err)
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
    )
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
	states, own := map[string]bool{}, l.driver.own
	rows, err := l.driver.jobs.Async().Query(ctx, l.driver.jobs.Names.Render(pausesSQL), l.driver.queues, own.queues, own.keys, own.digests)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&name, &paused, &led, &outdated, &waiting}, func() error {
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

// control is River's own notification of a queue that is paused or resumed. The names of queues are those of kinds.
func control(queue string, paused bool) *riverdriver.Notification {
	action := "resume"
	if paused {
		action = "pause"
	}
	return &riverdriver.Notification{Topic: controlTopic, Payload: fmt.Sprintf(`{"action":%q,"queue":%q}`, action, queue)}
}
