package riverjobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/generation"
)

// River's topics, and the name that stands for all queues.
const (
	insertTopic     = "river_insert"
	controlTopic    = "river_control"
	leadershipTopic = "river_leadership"
	allQueues       = "*"
)

// driver is River's, except that its listener hears of inserted jobs alone. Every role that may connect may notify: one made-up
// notification paused all workers for ever, others cancelled jobs or had the leader resign. What River
// believes comes from its tables, which take a grant: pauses and jobs whose cancelling was asked for are read from there and told in the
// place of the notification. Where the table has no leader, as after a clean stop, River is told
// that the leader has resigned; it would look by itself every 5 s.
type driver struct {
	*riverpgxv5.Driver

	jobs database.Database
	// client is the ID of River's client, as jobs that it works on have it.
	client string
	log    *slog.Logger
	// ticker records the ticks whose jobs are inserted.
	ticker *ticker
	// look asks for the queues. Its own ones are those whose jobs work with definitions, with the keys of their leases and the digests: a
	// worker fetches no job of a queue for which others are installed, as it could only turn it away from a worker that has them.
	look dbsqlc.QueueLooksParams
	// ended are the rows, by ID, of jobs that have ended themselves, in a transaction of ours, and that River is still to end.
	ended sync.Map
	// news holds what the last pulse has to tell River, until the listener takes it.
	news chan []*riverdriver.Notification
	// said is when it was last logged of a queue.
	said map[string]time.Time
}

func (d *driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{Listener: d.Driver.GetListener(params), driver: d}
}

// setGenerations fills in the own queues.
func (d *driver) setGenerations(generations []generation.Generation) {
	d.said = map[string]time.Time{}
	for _, g := range generations {
		for _, queue := range g.Kinds {
			for _, key := range g.Keys {
				d.look.OwnQueues, d.look.OwnKeys = append(d.look.OwnQueues, queue), append(d.look.OwnKeys, key)
				d.look.OwnDigests = append(d.look.OwnDigests, g.Digest)
			}
		}
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
