package pulse

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/dbsqlc"
)

const (
	// Usual is the time between two pulses.
	Usual = 2 * time.Second
	// answer bounds a pulse, guestsAnswer one with guests: to prepare a statement on a locked table waits without a lock timeout.
	answer, guestsAnswer = 5 * time.Second, 2 * time.Second
	// retry is the pause after a pulse that failed.
	retry = time.Second
)

// Question is one that a part of the worker asks a database.
type Question struct {
	// Every is how often it is asked, rounded down to whole periods; 0 means at each pulse.
	Every time.Duration
	// Guest is true of a question on tables that the application may lock for long, or that the worker can do without.
	Guest bool
	// Ask sends one statement over on, or none, and returns what follows from the answer; nil for nothing.
	Ask func(ctx context.Context, on dbsqlc.DBTX) (Then, error)
	// Failed is told that it was not answered; a guest also where another one was the reason. Where it is nil the pulse has failed, unless the
	// question is a guest.
	Failed func(context.Context, error)
}

// Pool is where a pulse asks.
type Pool interface {
	Sender
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Pulse asks one database. Its questions are added before it begins.
type Pulse struct {
	// On is where it asks, a pool.
	On Pool
	// Period is the time between two pulses, 0 means 2 s. Answer bounds a pulse, 0 means 5 s.
	Period, Answer time.Duration

	questions []Question
	mu        sync.Mutex
	// count counts the pulses since the last one that failed.
	count  int
	failed bool
	// alone is true after a pulse without an answer. Then the next one asks each question alone, until all are answered.
	alone bool
}

// Add adds questions.
func (p *Pulse) Add(questions ...Question) { p.questions = append(p.questions, questions...) }

// Run asks at once and then at every period until ctx ends. After each pulse it calls ended, if there is one, with the reason of a failure.
func (p *Pulse) Run(ctx context.Context, ended func(error)) {
	for ctx.Err() == nil {
		pause := cmp.Or(p.Period, Usual)
		err := p.Next(ctx)
		if err != nil {
			pause = min(pause, retry)
		}
		if ended != nil && ctx.Err() == nil {
			ended(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Next asks what is due in the next pulse.
func (p *Pulse) Next(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, guests := p.due(p.count)
	p.count++
	if len(guests) > 0 && !p.failed {
		then, err := p.ask(ctx, min(guestsAnswer, p.answer()/2), slices.Concat(own, guests)...)
		if err == nil {
			return p.ended(follow(ctx, then))
		}
		failed := p.askOwn(ctx, own)
		if failed == nil {
			// On a busy server they may take longer. With the lock timeout first they wait for no locked table meanwhile.
			if then, err = p.askAlone(ctx, guests...); err == nil {
				return p.ended(follow(ctx, then))
			}
		}
		for _, q := range guests {
			if q.Failed != nil {
				q.Failed(ctx, err)
			}
		}
		return p.ended(failed)
	}
	return p.ended(p.askOwn(ctx, own))
}

// ended notes how a pulse ended.
func (p *Pulse) ended(err error) error {
	if p.failed = err != nil; p.failed {
		p.count = 0 // The next pulse asks everything again, without guests.
	}
	return err
}

// askOwn asks questions together or, where one may be the reason that the others are not answered, each alone.
func (p *Pulse) askOwn(ctx context.Context, own []Question) (failed error) {
	var together error
	if !p.alone {
		var then []Then
		if then, together = p.ask(ctx, p.answer(), own...); together == nil {
			return follow(ctx, then)
		}
	}
	unanswered := together != nil && !refused(together)
	p.alone = unanswered
	for _, q := range own {
		err := together
		if !unanswered {
			var then []Then
			then, err = p.askAlone(ctx, q)
			unanswered = err != nil && !refused(err) // The others would wait as long.
			together = err
			if err == nil {
				failed = errors.Join(failed, follow(ctx, then))
			}
		}
		p.alone = p.alone || err != nil
		switch {
		case err == nil:
		case q.Failed != nil:
			q.Failed(ctx, err)
		default:
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// refused reports whether the server has answered that a question cannot be answered.
func refused(err error) bool {
	_, is := errors.AsType[*pgconn.PgError](err)
	return is
}

// askAlone asks questions in a transaction that has the lock timeout before the statement is prepared: that waits for a locked table, too.
func (p *Pulse) askAlone(ctx context.Context, questions ...Question) (then []Then, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.answer())
	defer cancel()
	err = pgx.BeginFunc(ctx, p.On, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSQL, lockTimeout); err != nil {
			return err
		}
		then, err = gather(ctx, tx, questions)
		return err
	})
	return then, err
}

// due are the questions of the n-th pulse.
func (p *Pulse) due(n int) (own, guests []Question) {
	for _, q := range p.questions {
		switch {
		case n%max(1, int(q.Every/cmp.Or(p.Period, Usual))) != 0:
		case q.Guest:
			guests = append(guests, q)
		default:
			own = append(own, q)
		}
	}
	return own, guests
}

func (p *Pulse) answer() time.Duration { return cmp.Or(p.Answer, answer) }

// ask asks questions together.
func (p *Pulse) ask(ctx context.Context, within time.Duration, questions ...Question) ([]Then, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return gather(ctx, p.On, questions)
}

// follow does what follows from the answers: once, whatever comes of it.
func follow(ctx context.Context, then []Then) (err error) {
	for _, do := range then {
		err = errors.Join(err, do(ctx))
	}
	return err
}
