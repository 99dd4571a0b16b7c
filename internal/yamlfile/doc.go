// Package yamlfile reads the YAML that people write for Sexton, strictly, and reports everything that is
// wrong in one go.
//
// Parse turns text into a tree of nodes that know their places; Node.Set lays values from elsewhere (an
// environment variable, a flag) over it; Node.Expand replaces ${VARIABLES}; Decode fills a struct and
// checks keys and types against it; Encode and Node.YAML lead back. Messages never repeat a value,
// because any value may be a secret that ended up in the wrong place.
//
// Anchors, aliases and merge keys work as in YAML 1.1; of the tags only !!str is understood.
package yamlfile
