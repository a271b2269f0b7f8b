(** Weak types of partial arrays as the search sees them: a local shape, and how many summands each tile has. *)
From mathcomp Require Import all_ssreflect.
From Redistrib Require Import Spec.Sequences Spec.Weak.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section PartialWeak.
Variables (r : nat) (s : shape r) (N : nat). (* global shape, number of devices *)

Definition pstate := (shape r * nat)%type.

(** Tiles divide the array, and the number of tiles times that of summands divides the number of devices. *)
Definition pnode (x : pstate) : bool := [forall i, x.1 i %| s i] && (x.2 * vol s %| N * vol x.1).

Inductive pkind := Moves (k : kind) | ReduceScatter | AllReduce | Unreduce.

(** One weak collective. Moves keep the number of summands. *)
Definition pstep (w : width) (k : pkind) (x y : pstate) : Prop :=
  [/\ pnode x, pnode y &
   match k with
   | Moves k => wstep s N w k x.1 y.1 /\ x.2 = y.2
   | ReduceScatter => exists i m, [/\ factor w m, x.2 = m * y.2 & x.1 = mul i m y.1]
   | AllReduce => exists m, [/\ factor w m, x.2 = m * y.2 & x.1 = y.1]
   | Unreduce => exists m, [/\ factor w m, y.2 = m * x.2 & x.1 = y.1 \/ exists i, y.1 = mul i m x.1]
   end].

Fixpoint prun (w : width) (x : pstate) (q : seq (pkind * pstate)) (y : pstate) : Prop :=
  if q is (k, z) :: q' then pstep w k x z /\ prun w z q' y else x = y.

Fixpoint pheight (x : pstate) (q : seq (pkind * pstate)) : nat :=
  maxn (vol x.1) (if q is (_, z) :: q' then pheight z q' else 0).

Definition pkinds (q : seq (pkind * pstate)) : seq pkind := [seq e.1 | e <- q].
Definition is_reduce_scatter k := if k is ReduceScatter then true else false.
Definition is_all_reduce k := if k is AllReduce then true else false.
Definition is_move (K : kind -> bool) k := if k is Moves k' then K k' else false.

(** dynslice* reduce_scatter* all_reduce* (alltoall | permute)* allgather* *)
Definition pnormal (ks : seq pkind) : Prop :=
  exists a b c d e, [/\ ks = a ++ b ++ c ++ d ++ e, all (is_move is_slice) a, all is_reduce_scatter b,
                        all is_all_reduce c & all (is_move is_middle) d /\ all (is_move is_gather) e].
End PartialWeak.
