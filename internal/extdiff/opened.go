package extdiff

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sexton/internal/blobstore"
)

// Opened opens a store on first use. All users share the store's credentials, connections
// and upload buffers, and the result of the owner check. The zero value is ready to use.
// It is safe for concurrent use.
type Opened struct {
	mu sync.Mutex
	// engine is nil before the first use, after a failed attempt to open the store, and
	// after the store refused access.
	engine *Engine
}

// get returns the open store, and opens it if necessary. Concurrent callers wait until it
// is open. The search for credentials takes at most 5 s.
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

// Use calls do with the store. If the store cannot be opened or refuses access, the next
// use opens it again, because the credentials may have changed.
func (o *Opened) Use(ctx context.Context, open func(context.Context) (*Engine, error), do func(*Engine) error) error {
	used, err := o.get(ctx, open)
	if err != nil {
		return err
	}
	err = do(used)
	if _, refused := errors.AsType[*blobstore.AccessError](err); refused {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.engine == used { // If o.engine has changed, another caller has already opened the store again.
			o.engine = nil
		}
	}
	return err
}

// otherStoreError reports that a row names a store of a different kind than the
// configured store.
type otherStoreError struct {
	key        string
	is, want   blobstore.Kind
	configured string
}

func (e *otherStoreError) Error() string {
	return fmt.Sprintf("%s is in %s, but external_diffs.bucket (%s) is %s; copy the object there and set external_diff_store of the row to %d",
		e.key, e.is, e.configured, e.want, int(e.want))
}

// checkStoreKind returns an *otherStoreError if a row names a store of a different kind
// than at.
func checkStoreKind(at *blobstore.Store, key string, named int) error {
	if kind := blobstore.Kind(named); kind != at.Kind() {
		return &otherStoreError{key: key, is: kind, want: at.Kind(), configured: at.String()}
	}
	return nil
}
