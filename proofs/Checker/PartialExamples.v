(** * The promises on sums bite: small plans accepted, and broken ones that really do leave wrong sums *)

From Coq Require Import ZArith List Bool Lia.
From Redistrib.Checker Require Import Spec Check Sound PartialSpec PartialCheck PartialSound.
Import ListNotations.
Open Scope Z_scope.

(** Bits: their sum is exclusive or. *)
Definition bits : algebra bool.
Proof.
  refine (Algebra bool (fun r => match r with Sum => xorb | Max => orb | Min => andb end)
    (fun r => match r with Min => true | _ => false end) _ _ _ _).
  - intros [] [] [] []; reflexivity.
  - intros [] [] []; reflexivity.
  - intros [] []; reflexivity.
  - intros [] [] E; (reflexivity || (exfalso; apply E; reflexivity)).
Defined.

(** Two devices hold a summand each of two elements, and send one another shares. *)
Definition both (r : reduction) (shares : list share) : pplan :=
  let m := Mesh [2] [0; 1] in let everywhere := Placement [1] [[0]; [0]] in
  PPlan (PType [Dim 2 [] 2] [0] r) m (PType [Dim 2 [] 2] [] Sum) m
    [PPlacement everywhere [0; 1] 2 r; PPlacement everywhere [0; 0] 1 Sum]
    [PStep 0 1 (ReduceExchange Ragged shares [0; 2])].

Definition all_shares : list share := [Share 0 1 0 [0] [2]; Share 1 0 0 [0] [2]].
Definition one_lost : list share := [Share 1 0 0 [0] [2]].
Definition one_twice : list share := all_shares ++ [Share 0 1 1 [1] [1]].

Example sum_accepted : check_partial_plan (both Sum all_shares) = true.
Proof. reflexivity. Qed.

Example share_lost_refused : check_partial_plan (both Sum one_lost) = false /\ check_partial_plan (both Max one_lost) = false.
Proof. split; reflexivity. Qed.

Example share_twice_refused : check_partial_plan (both Sum one_twice) = false.
Proof. reflexivity. Qed.

(** Buffers that hold 1 on device 0 and 0 on device 1: an array of ones. *)
Lemma starts r (shares : list share) : r <> Min ->
  represents bits 2 (psource_layout (both r shares))
    (fun d l => holding (is_device 2) [2] (fun _ => [0]) (fun _ => d =? 0) d l) (fun _ => true).
Proof.
  intros E. exists (fun k _ => k =? 0). split; [intros _; destruct r; [reflexivity..|congruence]|].
  intros d l. unfold holding. cbn [psource_layout both psource psource_mesh layout_of_type shape_of start_of summand_of local_shape whole map tile].
  destruct (is_device 2 d) eqn:Hd; [|reflexivity]. cbn [andb]. destruct (inside [2] l); [|reflexivity].
  unfold is_device in Hd. apply andb_prop in Hd. destruct Hd as [H1 H2]. apply Z.leb_le in H1. apply Z.ltb_lt in H2.
  assert (d = 0 \/ d = 1) as [-> | ->] by lia; reflexivity.
Qed.

(** Where the plan leaves 0 on device 1 at element 1, it does not redistribute. *)
Lemma leaves_zero r shares : r <> Min ->
  prun (both r shares) bits (psteps (both r shares)) (fun d l => holding (is_device 2) [2] (fun _ => [0]) (fun _ => d =? 0) d l) 1 [1] = Some false ->
  ~ predistributes (both r shares).
Proof.
  intros E Z P. destruct (P bool bits _ _ (starts r shares E)) as (w & Hw & Hst).
  specialize (Hst 1 [1]). rewrite Z in Hst. vm_compute in Hst. injection Hst as Hst.
  specialize (Hw [1]). vm_compute in Hw. destruct (w 0 [1]); congruence.
Qed.

Theorem share_lost_wrong : ~ predistributes (both Sum one_lost).
Proof. apply leaves_zero; [discriminate|reflexivity]. Qed.

(** A share that comes twice is wrong in a sum. *)
Theorem share_twice_wrong : ~ predistributes (both Sum one_twice).
Proof. apply leaves_zero; [discriminate|reflexivity]. Qed.

(** In a maximum it is not. *)
Theorem maximum_twice_kept : ppromises (both Max one_twice) 2.
Proof. apply check_partial_plan_within_sound; reflexivity. Qed.

Theorem sum_kept : ppromises (both Sum all_shares) 2.
Proof. apply check_partial_plan_within_sound; reflexivity. Qed.
