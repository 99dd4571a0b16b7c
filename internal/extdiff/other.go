package extdiff

import (
	"context"
	"fmt"
	"sync"

	"sexton/internal/blobstore"
)

// Other is a second store, of the other kind than the configured one. It is opened for the first diff or object that is there, so
// that a store that is away stops no work on the configured one. It is safe for concurrent use.
type Other struct {
	// Open returns the engine of the store. After an error the next call opens it again.
	Open func(ctx context.Context) (*Engine, error)

	mu     sync.Mutex
	engine *Engine
}

// Get returns the engine of the store, and nil where there is none.
func (o *Other) Get(ctx context.Context) (*Engine, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // there is no other store, which is no error
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.engine == nil {
		engine, err := o.Open(ctx)
		if err != nil {
			return nil, err
		}
		o.engine = engine
	}
	return o.engine, nil
}

// On returns an engine like this one that works on another store alone.
func (e *Engine) On(store *blobstore.Store) *Engine {
	on := *e
	on.Store, on.Owner, on.Other = store, &Owner{DB: e.DB, Store: store}, nil
	return &on
}

// elsewhereError says that an object is in a store that is not configured.
type elsewhereError struct {
	key        string
	is, want   blobstore.Kind
	configured string
}

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("%s was written to %s, but the configured store %s is %s; set external_diffs.other_bucket to the store that has it",
		e.key, e.is, e.configured, e.want)
}

// at returns the engine of the store that a row names: this one, or the other.
func (e *Engine) at(ctx context.Context, key string, store int) (*Engine, error) {
	kind := blobstore.Kind(store)
	if kind == e.Store.Kind() {
		return e, nil
	}
	other, err := e.Other.Get(ctx)
	switch {
	case err != nil:
		return nil, err
	case other == nil || other.Store.Kind() != kind:
		return nil, &elsewhereError{key: key, is: kind, want: e.Store.Kind(), configured: e.Store.String()}
	}
	return other, nil
}

// Each calls do with the engine of the configured store, then with that of the other one, where there is one. It ends at the first
// error.
func (e *Engine) Each(ctx context.Context, do func(at *Engine) error) error {
	if err := do(e); err != nil {
		return err
	}
	other, err := e.Other.Get(ctx)
	if err != nil || other == nil {
		return err
	}
	return do(other)
}
