package riverjobs

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river/riverdriver"

	"sexton/internal/dbsqlc"
	"sexton/internal/pulse"
	"sexton/internal/sleep"
)

// listener is used by one goroutine at a time, as River's is. River never learns that a connection is lost: it would wait longer with each loss
// in the life of the process, up to a minute, and look for nothing meanwhile.
type listener struct {
	riverdriver.Listener

	driver *driver
	// told are notifications of the last pulse that River has not taken yet.
	told []*riverdriver.Notification
	// listens is true while River wants to hear of inserted jobs, lost while there is no connection to hear on.
	listens, lost bool
}

const (
	// redial is the pause before a lost connection is dialled again, dialAnswer how long that may take.
	redial     = time.Second
	dialAnswer = 2 * time.Second
)

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

// Ping asks nothing, though River wants it every 5 s: the socket finds out by itself that the other end is gone, and the pulse what was not heard.
func (l *listener) Ping(context.Context) error { return nil }

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
	ctx, cancel := context.WithTimeout(ctx, dialAnswer)
	defer cancel()
	err := l.Listener.Connect(ctx)
	if err == nil && l.listens {
		err = l.Listener.Listen(ctx, insertTopic)
	}
	if err != nil {
		_ = l.Listener.Close(ctx)
		return false
	}
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
		case l.lost:
			if l.lost = !l.dial(ctx); l.lost {
				l.await(ctx, func(ctx context.Context) { _ = sleep.For(ctx, redial) })
			}
			continue
		}
		var heard *riverdriver.Notification
		l.await(ctx, func(ctx context.Context) {
			var err error
			if heard, err = l.Listener.WaitForNotification(ctx); err != nil && ctx.Err() == nil {
				_ = l.kept(ctx, err)
			}
		})
		if heard != nil {
			return heard, nil
		}
	}
}

// await ends what it does when the pulse has something to tell.
func (l *listener) await(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		select {
		case l.told = <-l.driver.news:
			cancel()
		case <-ctx.Done():
		}
	}()
	do(ctx)
	cancel()
	<-told
}

// queuesQuestion tells River the state of all queues at each pulse, whether it has changed or not: a queue that begins just now would miss the
// change. It also tells of jobs that wait to be fetched: their notification was lost, or they were snoozed for less than River's scheduler
// looks after. So River itself polls rarely. And it tells of running jobs whose cancelling was asked for.
func (d *driver) queuesQuestion() pulse.Question {
	return pulse.Question{Ask: d.readQueues, Failed: func(ctx context.Context, err error) {
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "pauses cannot be read; they stay as they were", "error", err)
		}
	}}
}

func (d *driver) readQueues(ctx context.Context, on dbsqlc.DBTX) (pulse.Then, error) {
	queues, err := d.jobs.Names.Queries(on).QueueLooks(ctx, d.look)
	if err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	return func(ctx context.Context) error {
		told := d.tell(ctx, queues)
		select {
		case <-d.news: // The last ones were not taken; these say all of it again.
		default:
		}
		d.news <- told
		return nil
	}, nil
}

func (d *driver) tell(ctx context.Context, queues []dbsqlc.QueueLooksRow) (told []*riverdriver.Notification) {
	some, led := false, true
	for _, q := range queues {
		if q.Waiting && !q.Paused && !q.Outdated {
			told = append(told, &riverdriver.Notification{Topic: insertTopic, Payload: fmt.Sprintf(`{"queue":%q}`, q.Name)})
		}
		for _, id := range q.Cancelled {
			told = append(told, &riverdriver.Notification{Topic: controlTopic, Payload: fmt.Sprintf(`{"action":"cancel","queue":%q,"job_id":%d}`, q.Name, id)})
		}
		some, led = some || q.Paused || q.Outdated, q.Led
		d.noteOutdated(ctx, q.Name, q.Outdated)
	}
	if !some {
		told = append(told, control(allQueues, false))
	}
	for _, q := range queues {
		if some {
			told = append(told, control(q.Name, q.Paused || q.Outdated))
		}
	}
	if !led {
		told = append(told, &riverdriver.Notification{Topic: leadershipTopic, Payload: `{"action":"resigned","leader_id":""}`})
	}
	return told
}

// control is River's own notification of a queue that is paused or resumed. The names of queues are those of kinds.
func control(queue string, paused bool) *riverdriver.Notification {
	action := "resume"
	if paused {
		action = "pause"
	}
	return &riverdriver.Notification{Topic: controlTopic, Payload: fmt.Sprintf(`{"action":%q,"queue":%q}`, action, queue)}
}
