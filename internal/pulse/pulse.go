package pulse

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/dbsqlc"
	"sexton/internal/sleep"
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
	// Failed is told that it was not answered. Where it is nil the pulse has failed, unless the question is a guest.
	Failed func(context.Context, error)
}

// Pulse asks one database. Its questions are added before it begins.
type Pulse struct {
	// On is where it asks.
	On Sender
	// Period is the time between two pulses, 0 means 2 s. Answer bounds a pulse, 0 means 5 s.
	Period, Answer time.Duration

	questions []Question
	mu        sync.Mutex
	// count counts the pulses since the last one that failed.
	count  int
	failed bool
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
		_ = sleep.For(ctx, pause)
	}
}

// Next asks what is due in the next pulse.
func (p *Pulse) Next(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, guests := p.due(p.count)
	p.count++
	if len(guests) > 0 && !p.failed && p.ask(ctx, min(guestsAnswer, p.answer()/2), slices.Concat(own, guests)...) == nil {
		return nil
	}
	err := p.ask(ctx, p.answer(), own...)
	if p.failed = err != nil; !p.failed {
		return nil
	}
	_, refused := errors.AsType[*pgconn.PgError](err)
	var failed error
	for _, q := range own {
		alone := err
		if refused && len(own) > 1 { // Another one may be the reason.
			alone = p.ask(ctx, p.answer(), q)
		}
		switch {
		case alone == nil:
		case q.Failed != nil:
			q.Failed(ctx, alone)
		default:
			failed = errors.Join(failed, alone)
		}
	}
	if p.failed = failed != nil; p.failed {
		p.count = 0 // The next pulse asks everything again, without guests.
	}
	return failed
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

// ask asks questions together, and does what follows from the answers.
func (p *Pulse) ask(ctx context.Context, within time.Duration, questions ...Question) error {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	then, err := gather(bounded, p.On, questions)
	if err != nil {
		return err
	}
	for _, do := range then {
		err = errors.Join(err, do(ctx))
	}
	return err
}
