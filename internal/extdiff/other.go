package extdiff

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sexton/internal/blobstore"
)

// Opened is a store that is opened for its first use: all users share its credentials, its connections and the memory of its uploads, and
// what was found of whose the objects are. The zero value is ready to use. It is safe for concurrent use.
type Opened struct {
	mu sync.Mutex
	// engine is nil before the first use, after a failed one, and after a refusal.
	engine *Engine
}

// get opens the store where it is not open. Others wait meanwhile, for the 5 s at most that a search for credentials takes.
func (o *Opened) get(ctx context.Context, open func(context.Context) (*Engine, error)) (_ *Engine, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.engine == nil {
		if o.engine, err = open(ctx); err != nil {
			o.engine = nil
		}
	}
	return o.engine, err
}

// Use has do work with the store. Where the store cannot be opened, or refuses, the next use opens it anew: the credentials may have
// been mended, which an open store would not see.
func (o *Opened) Use(ctx context.Context, open func(context.Context) (*Engine, error), do func(*Engine) error) error {
	used, err := o.get(ctx, open)
	if err != nil {
		return err
	}
	err = do(used)
	if _, refused := errors.AsType[*blobstore.AccessError](err); refused {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.engine == used { // Otherwise it was opened because an older one refused.
			o.engine = nil
		}
	}
	return err
}

// Other is a second store, of the other kind than the configured one. It is opened for the first diff or object that is there, so
// that a store that is away stops no work on the configured one. It is safe for concurrent use.
type Other struct {
	// Open returns the engine of the store. After an error the next call opens it again.
	Open func(ctx context.Context) (*Engine, error)

	opened Opened
}

// Get returns the engine of the store, and nil where there is none.
func (o *Other) Get(ctx context.Context) (*Engine, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // there is no other store, which is no error
	}
	return o.opened.get(ctx, o.Open)
}

// On returns an engine like this one that works on another store alone.
func (e *Engine) On(store *blobstore.Store) *Engine {
	on := *e
	on.Store, on.Owner, on.Other = store, &Owner{DB: e.DB, Store: store}, nil
	return &on
}

// otherStoreError reports that an object is in a store that is not configured.
type otherStoreError struct {
	key        string
	is, want   blobstore.Kind
	configured string
}

func (e *otherStoreError) Error() string {
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
		return nil, &otherStoreError{key: key, is: kind, want: e.Store.Kind(), configured: e.Store.String()}
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
