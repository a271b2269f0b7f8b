(** Meshes, distributed types and their meaning (Figures 6 and 7). *)
From mathcomp Require Import all_ssreflect all_fingroup.
From Redistrib Require Import Spec.Sequences.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Types.
(** The mesh has [n] axes; axis [a] has size [sz a]. Arrays have rank [r]. *)
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).

Definition axis := 'I_n.

(** A device: its coordinate along every axis. The mesh [H] of the paper is the set of devices. *)
Definition dev := {dffun forall a : axis, 'I_(sz a)}.
Definition ndev : nat := \prod_a sz a.

(** A type [c_0{x_0}s_0, ..., c_(r-1){x_(r-1)}s_(r-1)]: local shape, axes of each dimension from minor to major,
    global shape. *)
Record ty := Ty { loc : shape r; axs : {ffun 'I_r -> seq axis}; glob : shape r }.

(** The product of the sizes of some axes: the number of parts they cut a dimension into. *)
Definition span (xs : seq axis) : nat := \prod_(a <- xs) sz a.

(** How often an axis occurs in a type. *)
Definition occurrences (v : ty) (a : axis) : nat := \sum_i count_mem a (axs v i).
Definition free (v : ty) (a : axis) : bool := occurrences v a == 0.

(** Figure 7b. Axes are affine: none occurs twice, in one dimension or in two. Dimensions are not empty. *)
Definition wf (v : ty) : bool :=
  [forall i, (0 < glob v i) && (loc v i * span (axs v i) == glob v i)] && [forall a, occurrences v a <= 1].

(** Figure 7a: base offsets of a dimension and of a type. *)
Fixpoint doff (c : nat) (xs : seq axis) (h : dev) : nat :=
  if xs is x :: xs' then c * h x + doff (c * sz x) xs' h else 0.

Definition T (v : ty) (h : dev) : shape r := [ffun i => doff (loc v i) (axs v i) h].

(** Definition 5.2: base offset maps are equivalent when a permutation of the devices relates them. *)
Definition equiv (v1 v2 : ty) : Prop := exists p : {perm dev}, forall h, T v2 h = T v1 (p h).
End Types.
