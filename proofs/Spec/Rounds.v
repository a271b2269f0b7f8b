(** Exchanges of shares: rounds, and groups of one dense all-to-all. Beyond the paper. *)
From mathcomp Require Import all_ssreflect.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** [M a b] shares of one size go from device [a] to device [b], its own included. Each device sends and receives [N].
    A round is a permutation: every device sends at most one share and receives at most one. *)
Definition regular (D : finType) (M : D -> D -> nat) (N : nat) : Prop :=
  (forall a, \sum_b M a b = N) /\ (forall b, \sum_a M a b = N).

(** Where in every dimension one tile count divides the other, the two tilings have a common coarsening; a tile before
    the exchange is a chunk of one of its cells, and a tile after it lies in one cell. A group serves its members when
    every member's new tile lies in the cell of all the group's old tiles, and these are all the chunks of the cell,
    each once. *)
Section Dense.
Variables (D K P G : finType). (* devices, cells, chunks of a cell, names of groups *)
Variables (before after : D -> K) (chunk : D -> P).

(** The groups are the fibres of [group]. *)
Definition dense (group : D -> G) : Prop :=
  (forall d d', group d = group d' -> before d = after d') /\
  (forall d p, exists d', [/\ group d' = group d, chunk d' = p &
                              forall e, group e = group d -> chunk e = p -> e = d']).

(** The devices that hold chunk [p] of the cell [k]. *)
Definition holders (k : K) (p : P) : {set D} := [set d | (before d == k) && (chunk d == p)].

(** Source and target agree on the cells, and every chunk of a cell is held equally often. *)
Definition agree : Prop :=
  (forall d, before d = after d) /\ (forall d p p', #|holders (before d) p| = #|holders (before d) p'|).
End Dense.
