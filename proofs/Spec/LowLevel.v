(** Low-level, MPI-style collectives on device assignments (Section 6, Figure 10). *)
From mathcomp Require Import all_ssreflect all_fingroup.
From Redistrib Require Import Spec.Sequences Spec.Types Spec.Collectives.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section LowLevel.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Local Notation axis := (axis n).
Local Notation ty := (ty n r).
Local Notation dev := (dev sz).

(** Definition 6.1. Physical devices are named by mesh positions, so a device map is a permutation of [dev].
    Base offset maps are those of types: the assignment <phi, T[[v]]> is the pair of [phi] and [v]. *)
Record assignment := Assign { dmap : {perm dev}; ltype : ty }.

(** The base offset that a physical device holds: beta o phi^-1. *)
Definition place (a : assignment) (d : dev) : shape r := T (ltype a) ((dmap a)^-1%g d).

(** Definition 6.2. *)
Definition same_place (a b : assignment) : Prop := forall d, place a d = place b d.

(** A type with the axes [xs] of dimension [i] brought to the front, the others in their old order: this is
    [.. c_i{x, y_i, x_i}s_i ..] made from [.. c_i{y_i, x, x_i}s_i ..]. *)
Definition bring (i : 'I_r) (xs : seq axis) (v : ty) : ty :=
  Ty (loc v) (upd (axs v) i (xs ++ [seq a <- axs v i | a \notin xs])) (glob v).

(** Figure 10, over one fixed mesh. Gathers and all-to-alls first rename devices, [a] to [<phi', beta'>], moving no data;
    the axes need not be the minor-most, nor contiguous. *)
Definition lstep (w : width) (k : kind) (a a' : assignment) : Prop :=
  match k with
  | AllGather => exists i xs,
      [/\ ok w xs, uniq xs, {subset xs <= axs (ltype a) i},
          same_place a (Assign (dmap a') (bring i xs (ltype a))) &
          gather_rule sz i xs (bring i xs (ltype a)) (ltype a')]
  | AllToAll => exists i j xs,
      [/\ ok w xs, uniq xs, {subset xs <= axs (ltype a) i},
          same_place a (Assign (dmap a') (bring i xs (ltype a))) &
          alltoall_rule sz i j xs (bring i xs (ltype a)) (ltype a')]
  | DynSlice => dmap a = dmap a' /\ typed sz w DynSlice (ltype a) (ltype a')
  | AllPermute =>
      [/\ wf sz (ltype a'), glob (ltype a') = glob (ltype a) &
          exists p : {perm dev}, forall d, place a' d = place a (p d)]
  end.

Definition lrun w := run (lstep w).
Definition lcost M := cost (fun k a b => price M k (loc (ltype a)) (loc (ltype b))).
Definition lheight := height (fun a => vol (loc (ltype a))).
End LowLevel.
