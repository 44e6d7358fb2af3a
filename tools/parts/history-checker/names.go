package main

import "fmt"

// claim is an event of a unique name: a record takes it, releases it, or finds that it is taken.
type claim struct {
	uid  string
	op   *operation
	ret  int64
	sure bool
	kind claimKind
}

type claimKind int

const (
	acquires claimKind = iota
	releases
	findsTaken
)

func (c *claim) String() string {
	what := [...]string{"acquire", "release", "taken"}[c.kind]
	return fmt.Sprintf("%s[client %d, %d..%d] %s sure=%t", what, c.op.Client, c.op.Call, c.ret, c.uid, c.sure)
}

// step is the specification of a name. The state is the uid of the record that holds the name, empty if it is free.
func (c *claim) step(state any) (bool, any) {
	holder := state.(string)
	switch c.kind {
	case acquires:
		if holder == "" || holder == c.uid {
			return true, c.uid
		}
		return !c.sure, holder
	case releases:
		if holder == c.uid {
			return true, ""
		}
		return true, holder
	}
	return holder != "" && holder != c.uid, holder
}

// isNeeded returns true unless the event is unsure and cannot explain anything: neither that the name was taken, nor that another record
// could take it later.
func (c *claim) isNeeded(all []*claim) bool {
	if c.sure {
		return true
	}
	for _, other := range all {
		if c.kind == acquires && other.kind == findsTaken {
			return true
		}
		if c.kind == releases && other.kind == acquires && other.uid != c.uid && other.ret >= c.op.Call {
			return true
		}
	}
	return false
}

func namePartition(of string, claims []*claim) partition {
	p := partition{name: "name " + of, initial: ""}
	for _, c := range claims {
		if c.isNeeded(claims) {
			p.add(c.op.Client, c.op.Call, c.ret, c.step, c.String())
		}
	}
	return p
}
