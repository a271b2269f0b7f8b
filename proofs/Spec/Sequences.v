(** Shapes, kinds of collectives, sequences of steps, and what is measured on them.

    Everything here is independent of meshes and types; the weak, the typed and the low-level relations
    are three instances. *)
From mathcomp Require Import all_ssreflect.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** ** Shapes (Figure 6) *)
Section Shapes.
Variable r : nat. (* rank *)

(** A local or a global shape: one size per dimension. *)
Definition shape := {ffun 'I_r -> nat}.

(** [localsize] and [globalsize] of Figure 6: the product of the sizes. *)
Definition vol (c : shape) : nat := \prod_i c i.

(** Multiply dimension [i] by [m]. *)
Definition mul (i : 'I_r) (m : nat) (c : shape) : shape := [ffun k => if k == i then c k * m else c k].

(** Componentwise minimum: the largest box that tiles of shapes [c] and [c'] can share. *)
Definition meet (c c' : shape) : shape := [ffun k => minn (c k) (c' k)].
End Shapes.

(** ** Collectives and sequences *)
Inductive kind := DynSlice | AllToAll | AllPermute | AllGather.

Definition is_slice k := if k is DynSlice then true else false.
Definition is_alltoall k := if k is AllToAll then true else false.
Definition is_permute k := if k is AllPermute then true else false.
Definition is_gather k := if k is AllGather then true else false.
Definition is_middle k := is_alltoall k || is_permute k.

Section Runs.
Variable S : Type.

(** A sequence: each step's kind and the state it leads to. *)
Definition trace := seq (kind * S).
Definition kinds (p : trace) : seq kind := [seq e.1 | e <- p].

(** [run step x p y]: the steps of [p] lead from [x] to [y]. *)
Fixpoint run (step : kind -> S -> S -> Prop) (x : S) (p : trace) (y : S) : Prop :=
  if p is (k, z) :: p' then step k x z /\ run step z p' y else x = y.

(** Definition 4.4: the height, the largest local size of any state. *)
Fixpoint height (size_of : S -> nat) (x : S) (p : trace) : nat :=
  maxn (size_of x) (if p is (_, z) :: p' then height size_of z p' else 0).

(** Figure 11, first line: the cost of a sequence is the sum over its steps. *)
Fixpoint cost (price : kind -> S -> S -> nat) (x : S) (p : trace) : nat :=
  if p is (k, z) :: p' then price k x z + cost price z p' else 0.
End Runs.

(** Definition 4.5: dynslice* (alltoall | allpermute)* allgather*. *)
Definition normal (ks : seq kind) : Prop :=
  exists a b c, [/\ ks = a ++ b ++ c, all is_slice a, all is_middle b & all is_gather c].

(** ** Cost models: elements per device

    [Paper] is Figure 11. [Exact] counts what a device receives from others, the factor (m-1)/m that
    Appendix B drops: a tile of [vol c'] less the part it already holds. *)
Inductive model := Paper | Exact.

Definition price r (M : model) (k : kind) (c c' : shape r) : nat :=
  match k, M with
  | DynSlice, _ => 0
  | AllPermute, _ => vol c
  | AllGather, Paper => vol c'
  | AllGather, Exact => vol c' - vol c
  | AllToAll, Paper => vol c
  | AllToAll, Exact => vol c - vol (meet c c')
  end.

(** ** Single-axis and multi-axis collectives (Sections 4 and 7.1) *)
Inductive width := Single | Multi.

(** Which factors a collective may transfer: with prime axes, a single axis is a prime factor. *)
Definition factor (w : width) (m : nat) : bool := if w is Single then prime m else 1 < m.
