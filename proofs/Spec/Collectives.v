(** Typing of the collectives (Figure 8), and the weak collectives they induce (Section 5).

    One set of rules serves Sections 4 to 6, where a collective acts on one axis, and Section 7.1, where it acts on
    a sequence of axes: the width says which. *)
From mathcomp Require Import all_ssreflect all_fingroup.
From Redistrib Require Import Spec.Sequences Spec.Types.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Collectives.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Local Notation axis := (axis n).
Local Notation ty := (ty n r).
Local Notation span := (span sz).
Local Notation wf := (wf sz).
Implicit Types (v : ty) (xs ys : seq axis) (i j : 'I_r).

Definition upd (A : Type) (f : {ffun 'I_r -> A}) (i : 'I_r) (a : A) : {ffun 'I_r -> A} :=
  [ffun k => if k == i then a else f k].

(** The axes that a collective of this width may act on. *)
Definition ok (w : width) xs : bool := if w is Single then size xs == 1 else xs != [::].

(** T-AllGather: the minor-most axes [xs] of dimension [i] disappear. *)
Definition gather_rule i xs v v' : Prop :=
  exists ys, axs v i = xs ++ ys /\ v' = Ty (mul i (span xs) (loc v)) (upd (axs v) i ys) (glob v).

(** T-DynSlice: axes [xs] that cut nothing yet become the minor-most of dimension [i]. *)
Definition slice_rule i xs v v' : Prop :=
  exists c, [/\ uniq xs, all (free v) xs, loc v = mul i (span xs) c &
                v' = Ty c (upd (axs v) i (xs ++ axs v i)) (glob v)].

(** T-AllToAll: the minor-most axes [xs] of dimension [i] become the minor-most of another dimension [j].
    (The paper does not write [i <> j], but needs it.) *)
Definition alltoall_rule i j xs v v' : Prop :=
  exists ys c, [/\ i != j, axs v i = xs ++ ys, loc v = mul j (span xs) c &
                   v' = Ty (mul i (span xs) c) (upd (upd (axs v) i ys) j (xs ++ axs v j)) (glob v)].

(** T-Permute. (The paper asks for equal local types only; equal global types and a well-formed target are needed too.) *)
Definition permute_rule v v' : Prop := [/\ wf v, wf v', loc v = loc v' & glob v = glob v'].

(** Figure 8. *)
Definition typed (w : width) (k : kind) v v' : Prop :=
  match k with
  | AllGather => exists i xs, ok w xs /\ gather_rule i xs v v'
  | DynSlice => exists i xs, ok w xs /\ slice_rule i xs v v'
  | AllToAll => exists i j xs, ok w xs /\ alltoall_rule i j xs v v'
  | AllPermute => permute_rule v v'
  end.

(** Sequences between types. (Definition 4.3 relates base offset maps; like the paper we write a type for its map.) *)
Definition trun w := run (typed w).
Definition tprice (M : model) (k : kind) v v' : nat := price M k (loc v) (loc v').
Definition tcost M := cost (tprice M).
Definition tsize v : nat := vol (loc v).
Definition theight := height tsize.

(** Definition 5.3, existential over representatives: a collective between some members of the two classes. *)
Definition weak (w : width) (k : kind) v1 v2 : Prop :=
  k <> AllPermute /\
  exists u1 u2, [/\ [/\ wf u1, wf u2, glob u1 = glob v1 & glob u2 = glob v2],
                    equiv sz v1 u1, equiv sz v2 u2 & typed w k u1 u2].
End Collectives.
