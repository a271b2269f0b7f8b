(** Which elements a device holds, what it receives, and the three phases slice, exchange, gather. Beyond the paper. *)
From mathcomp Require Import all_ssreflect all_fingroup.
From Redistrib Require Import Spec.Sequences Spec.Types Spec.LowLevel.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Exchange.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat) (g : shape r). (* g: the global shape *)
Local Notation dev := (dev sz).

(** Elements of the global array. *)
Definition elem := {dffun forall i : 'I_r, 'I_(g i)}.

Definition box (o c : shape r) : {set elem} := [set e : elem | [forall i, (o i <= e i) && (e i < o i + c i)]].

(** The elements that device [d] holds under an assignment. *)
Definition tile (a : assignment sz r) (d : dev) : {set elem} := box (place a d) (loc (ltype a)).

(** Elements that [d] must take in from others between two assignments: those of its new tile that its old one lacks.
    From source to target this is the lower bound. *)
Definition received (a b : assignment sz r) (d : dev) : nat := #|tile b d :\: tile a d|.
Definition busiest (a b : assignment sz r) : nat := \max_d received a b d.

(** Cost of an exchange from [a] to [b] at equal tile volume and a gather from [b] to local shape [c]; slices are free. *)
Definition three_phase_cost (M : model) (a b : assignment sz r) (c : shape r) : nat :=
  match M with
  | Paper => vol (loc (ltype b)) + (if vol (loc (ltype b)) == vol c then 0 else vol c)
  | Exact => busiest a b + (vol c - vol (loc (ltype b)))
  end.
End Exchange.
