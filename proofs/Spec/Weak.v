(** Weak types and weak collectives (Section 5) as the search sees them: local shapes alone.

    That these are the paper's equivalence classes and the relation of Definition 5.3 is a theorem, not a
    definition: see [weak_step_iff] and [node_iff]. *)
From mathcomp Require Import all_ssreflect.
From Redistrib Require Import Spec.Sequences.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Weak.
Variables (r : nat) (s : shape r) (N : nat). (* global shape, number of devices *)

(** The implementation's node test: every tile size divides its dimension, and the number of tiles,
    [vol s / vol c], divides the number of devices (written without division). *)
Definition node (c : shape r) : bool := [forall i, c i %| s i] && (vol s %| N * vol c).

(** One weak collective between nodes. [alltoall] from dimension [i] to [j]: a factor [m] of the cut moves,
    so the tile grows along [i] and shrinks along [j]. *)
Definition wstep (w : width) (k : kind) (c c' : shape r) : Prop :=
  [/\ node c, node c' &
   match k with
   | AllGather => exists i m, factor w m /\ c' = mul i m c
   | DynSlice => exists i m, factor w m /\ c = mul i m c'
   | AllToAll => exists i j m d, [/\ i != j, factor w m, c = mul j m d & c' = mul i m d]
   | AllPermute => False
   end].

Definition wrun w := run (wstep w).
Definition wcost (M : model) := cost (@price r M).
Definition wheight := height (@vol r).

(** A sequence all of whose steps are of certain kinds. *)
Definition seg w (K : kind -> bool) x p y : Prop := wrun w x p y /\ all K (kinds p).
End Weak.
