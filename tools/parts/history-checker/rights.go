package main

import (
	"fmt"
	"slices"
)

// rightsPartitions decide whether those whose every right comes from role bindings in one group were let in while they had one there, and only then: the
// bindings of one identity are a set, of which each use tells whether it is empty.
func (w *world) rightsPartitions() []partition {
	var all []partition
	in := w.byPlace()
	for _, key := range sortedKeys(w.uses) {
		uses := w.uses[key]
		bindings := []*record{}
		for _, r := range in[place(binding, uses[0].Parent)] {
			if r.identity == uses[0].Identity {
				bindings = append(bindings, r)
			}
		}
		all = append(all, rightsPartition(key, bindings, uses, w.unseen[key]))
	}
	return all
}

// rightsPartition leaves out the uses that a binding may explain which nobody has seen.
func rightsPartition(of string, records []*record, uses []*operation, unseen []*operation) partition {
	p := partition{name: "rights " + of}
	empty := set(make([]byte, (len(records)+7)/8))
	p.initial = empty
	for at, r := range records {
		gone := r.surelyGone()
		for _, e := range r.events {
			// Says nothing that the removal does not say, and many of them at once have very many orders.
			if e.verb == isAbsent && e.call > gone {
				continue
			}
			step := memberStep(e, at, empty)
			if e.verb == vanishes {
				step = func(state any) (bool, any) { return true, state.(set).without(empty.with(at)) }
			}
			// Here a removal that is idle to the record itself may be what a use tells of.
			if step != nil {
				p.add(e.client, e.call, e.ret, step, join(r.uid, e.String()))
			}
		}
	}
	for _, o := range uses {
		isLetIn := o.Outcome == "ok"
		if isLetIn && slices.ContainsFunc(unseen, func(creation *operation) bool { return creation.Call <= o.returned() }) {
			continue
		}
		step := func(state any) (bool, any) { return (state.(set) != empty) == isLetIn, state }
		p.add(o.Client, o.Call, o.returned(), step, fmt.Sprintf("use[client %d, %d..%d] %s", o.Client, o.Call, o.returned(), o.Outcome))
	}
	return p
}
