package extdiff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/lease"
	"sexton/internal/problem"
)

const (
	// sweepTime bounds one pass; an hour later the next one goes on.
	sweepTime = 20 * time.Second
	// Where more than fewDangling objects of a page have no row, and these are more than half of it, it is likelier that the rows
	// are gone (a table truncated, an old backup) or were never here than that a sweep is wanted.
	fewDangling = 20
)

// Swept counts the part of the store that a pass has seen.
type Swept struct {
	// Listed counts objects, Swept those among them that no row referred to and that are gone.
	Listed int64 `json:"objects_listed"`
	Swept  int64 `json:"objects_swept"`
	// Foreign counts objects that are not named as those of diffs are: they stay.
	Foreign int64 `json:"objects_foreign"`
	// HeldBack counts objects without a row that stay because there are too many of them at once.
	HeldBack int64 `json:"objects_held_back"`
	// Aborted counts uploads in parts that no attempt goes on with.
	Aborted int64 `json:"uploads_aborted"`
}

// Plus is the sum of two passes.
func (s Swept) Plus(more Swept) Swept {
	return Swept{
		Listed: s.Listed + more.Listed, Swept: s.Swept + more.Swept, Foreign: s.Foreign + more.Foreign,
		HeldBack: s.HeldBack + more.HeldBack, Aborted: s.Aborted + more.Aborted,
	}
}

// Sweeper removes objects that no row refers to and that are not listed for removal: what a killed upload has left behind, say.
type Sweeper struct {
	Engine *Engine
	Fence  *lease.Lease
	// Every is the time from the start of one round through the store to the next, 0 for none at all. The first comes that
	// long after the store's first use.
	Every time.Duration
	// Grace is the age, by the store's clock, from which on an object is looked at.
	Grace time.Duration
	// Page is how many objects are looked at together; 0 means 1000.
	Page int
	// Gone, if set, is told of every object that was removed.
	Gone func(blobstore.Info)

	// refused is the first error that was about one object alone.
	refused error
}

// Run seals the store and, where a round is due or under way, goes on with it from where the last pass has stopped, for 20 s at
// most. Its place is kept page by page, so a pass that was killed is gone on with by the next. It ends at the first outage,
// which it returns. An object that the store does not delete is for the next round: Run goes on behind it, and returns the first such
// error at its end.
func (s *Sweeper) Run(ctx context.Context) (Swept, error) {
	s.refused = nil
	swept, err := s.run(ctx)
	return swept, errors.Join(err, s.refused)
}

func (s *Sweeper) run(ctx context.Context) (Swept, error) {
	var swept Swept
	// The store's time: how this machine's clock goes does not matter for what is old enough.
	now, err := s.Engine.Owner.Seal(ctx, s.Fence)
	if err != nil || s.Every <= 0 {
		return swept, err
	}
	after, due, err := s.begin(ctx)
	if err != nil || !due {
		return swept, err
	}
	if after == "" {
		if err := s.abort(ctx, now.Add(-s.Grace), &swept); err != nil {
			return swept, err
		}
	}
	err = s.round(ctx, now.Add(-s.Grace), after, &swept)
	return swept, err
}

// begin returns the key after which the listing goes on, where a round is due or under way.
func (s *Sweeper) begin(ctx context.Context) (after string, due bool, err error) {
	e := s.Engine
	err = fenced(ctx, e.DB, s.Fence, func(tx pgx.Tx) (err error) {
		on := e.DB.Names.Queries(tx)
		if err = on.SweepBegin(ctx, e.Store.Identity(), s.Every.Seconds()); err == nil {
			after, err = on.SweepPlace(ctx, e.Store.Identity())
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look whether the store is to be swept: %w", err)
	}
	return after, true, nil
}

func (s *Sweeper) round(ctx context.Context, before time.Time, after string, swept *Swept) error {
	size := cmp.Or(s.Page, listPage)
	until := time.Now().Add(sweepTime)
	listing, stop := context.WithCancel(ctx)
	defer stop()
	page := make([]blobstore.Info, 0, size)
	for object, err := range s.Engine.Store.ListAfter(listing, rootPrefix, after) {
		if err != nil {
			return err
		}
		if page = append(page, object); len(page) < size {
			continue
		}
		if whole, err := s.page(ctx, before, until, page, swept); err != nil || !whole || time.Now().After(until) {
			return err
		}
		page = page[:0]
	}
	whole, err := s.page(ctx, before, until, page, swept)
	if err != nil || !whole {
		return err
	}
	return s.advance(ctx, nil, Swept{}, true)
}

// page removes what is dangling in a page, and notes how far it has come. It reports whether that is its end.
func (s *Sweeper) page(ctx context.Context, before, until time.Time, page []blobstore.Info, swept *Swept) (whole bool, err error) {
	if len(page) == 0 {
		return true, nil
	}
	dangling, hold, err := s.dangling(ctx, before, page)
	if err != nil {
		return false, err
	}
	s.Engine.reach(PointListed)
	var seen Swept
	var last *blobstore.Info
	whole = true
	for i, object := range page {
		// Every page gets one step ahead, however slow the store is.
		if i > 0 && (ctx.Err() != nil || time.Now().After(until)) {
			whole = false
			break
		}
		if dangling[object.Key] && !hold {
			if err = s.remove(ctx, object, &seen); err != nil {
				break
			}
		}
		s.count(object, dangling[object.Key] && hold, &seen)
		last = &page[i]
	}
	if last != nil {
		err = errors.Join(err, s.advance(ctx, last, seen, false))
	}
	*swept = swept.Plus(seen)
	return whole && err == nil, err
}

func (s *Sweeper) count(object blobstore.Info, held bool, seen *Swept) {
	if isMarker(object.Key) {
		return
	}
	seen.Listed++
	if held {
		seen.HeldBack++
	}
	if _, ours := diffOf(object.Key); !ours {
		seen.Foreign++
	}
}

// dangling are the objects of a page that are old enough, are named as those of diffs are, and have no row; hold reports that they
// are too many.
func (s *Sweeper) dangling(ctx context.Context, before time.Time, page []blobstore.Info) (dangling map[string]bool, hold bool, err error) {
	used, err := s.Engine.used(ctx, page)
	if err != nil {
		return nil, false, err
	}
	dangling = map[string]bool{}
	for _, object := range page {
		if _, ours := diffOf(object.Key); ours && object.ModTime.Before(before) && !used[object.Key] {
			dangling[object.Key] = true
		}
	}
	return dangling, len(dangling) > fewDangling && 2*len(dangling) > len(page), nil
}

// remove deletes an object under its diff's claim, if nothing refers to it even now. One that a worker has in hand is for the next
// round.
func (s *Sweeper) remove(ctx context.Context, object blobstore.Info, seen *Swept) error {
	id, _ := diffOf(object.Key)
	gone, err := s.Engine.destroy(ctx, removal{diffID: id, key: object.Key})
	if _, busy := errors.AsType[*BusyError](err); busy {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("sweep %s: %w", object.Key, err)
		if _, kept := errors.AsType[*undeletedError](err); kept && s.passOver(ctx, err) {
			return nil
		}
		return err
	}
	if gone {
		seen.Swept++
		if s.Gone != nil {
			s.Gone(object)
		}
	}
	return nil
}

// passOver notes an error of the store that is about one object or upload alone, and reports whether it is one.
func (s *Sweeper) passOver(ctx context.Context, err error) bool {
	if _, outage := errors.AsType[*blobstore.OutageError](err); outage || ctx.Err() != nil {
		return false
	}
	if s.refused == nil {
		s.refused = err
	}
	return true
}

// advance notes how far the round has come, also when the pass has to end now.
func (s *Sweeper) advance(ctx context.Context, last *blobstore.Info, seen Swept, ended bool) error {
	e := s.Engine
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var after *string
	if last != nil {
		after = &last.Key
	}
	err := fenced(ctx, e.DB, s.Fence, func(tx pgx.Tx) error {
		return e.DB.Names.Queries(tx).SweepAdvance(ctx, after, seen.Listed, seen.Swept, seen.Foreign, seen.HeldBack, ended, e.Store.Identity())
	})
	return problem.Doing(err, "note how far the store is swept")
}
