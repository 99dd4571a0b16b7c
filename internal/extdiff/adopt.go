package extdiff

import (
	"context"
	"errors"
	"fmt"
)

// Adopted is the result of Adopt.
type Adopted struct {
	Store string `json:"store"`
	// Was is the database that the objects belonged to, nil where it is unknown; Now is this one.
	Was *Marker `json:"was"`
	Now Marker  `json:"now"`
	// Changed is false where they were this database's already.
	Changed bool `json:"changed"`
}

// Adopt makes the objects of the store this database's, no matter which database they belonged to: from then on that one is refused.
func (o *Owner) Adopt(ctx context.Context) (Adopted, error) {
	done := Adopted{Store: o.Store.String()}
	over, err := o.Store.Version(ctx, MarkerKey)
	if err != nil {
		return done, err
	}
	if done.Was, _, err = readMarker(ctx, o.Store); err != nil && !errors.Is(err, ErrNotOurs) {
		return done, err
	}
	s, err := o.self(ctx)
	if err != nil {
		return done, err
	}
	if done.Was != nil && s.obstacle(done.Was) == "" {
		done.Now = *done.Was
		return done, o.acquaint(ctx, done.Was.Seal)
	}
	if s.next, err = queries(o.DB).StoreAdopt(ctx, o.Store.Identity()); err != nil {
		return done, fmt.Errorf("choose the store's next seal: %w", err)
	}
	if _, err := o.stamp(ctx, s, over); err != nil {
		return done, fmt.Errorf("adopt %s: %w", o.Store, err)
	}
	done.Now, done.Changed = s.Marker, true
	done.Now.Seal = s.next
	return done, nil
}
