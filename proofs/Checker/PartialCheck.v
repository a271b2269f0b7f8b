(** * The checker of plans of partial arrays: a plan goes in, a boolean comes out *)

From Coq Require Import ZArith List Bool.
From Redistrib.Checker Require Import Spec Check PartialSpec.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

Definition same_reduction (r t : reduction) : bool :=
  match r, t with Sum, Sum | Max, Max | Min, Min => true | _, _ => false end.

(** Is the list the numbers of the other, in some order? *)
Definition permutes (l m : list Z) : bool :=
  (len l =? len m) &&& distinct l &&& forallb (fun k => mem k m) l.

(** ** Layouts *)

Section Layouts.
  Variable n : Z.

  (** Of every device where its tile starts and which summand it holds, computed once. *)
  Definition rows (y : layout) : list (point * Z) := map (fun d => (start_of y d, summand_of y d)) (range n).

  (** Tiles are the same or apart, and of every tile that is held every summand is. *)
  Definition check_layout (y : layout) : bool :=
    let rs := rows y in let t := shape_of y in
    forallb (fun u => len (fst u) =? len t) rs &&& forallb (fun u => is_device (summands y) (snd u)) rs &&&
    forallb (fun u => forallb (fun v => same (fst u) (fst v) ||| apart (box_at (fst u) t) (box_at (fst v) t)) rs) rs &&&
    (summands y <=? n) &&&
    let ks := range (summands y) in
    forallb (fun u => let here := map snd (filter (fun v => same (fst v) (fst u)) rs) in
      forallb (fun k => mem k here) ks) rs.

  (** The same tiles, and the same summands up to their numbers, which may differ from tile to tile. *)
  Definition check_same_layout (y z : layout) : bool :=
    let rs := combine (rows y) (rows z) in
    same (shape_of y) (shape_of z) &&& (summands y =? summands z) &&&
    ((summands y =? 1) || same_reduction (reduces y) (reduces z)) &&&
    forallb (fun u => same (fst (fst u)) (fst (snd u))) rs &&&
    forallb (fun u => forallb (fun v => negb (same (fst (fst u)) (fst (fst v))) |||
      Bool.eqb (snd (fst u) =? snd (fst v)) (snd (snd u) =? snd (snd v))) rs) rs.
End Layouts.

(** ** Steps *)

Section Steps.
  Variables (n : Z) (s : point) (b a : pplacement).
  Let tb := tile_of s (tiles b).
  Let ta := tile_of s (tiles a).
  Let ob := offset_of s (tiles b).
  Let oa := offset_of s (tiles a).
  Let lb := entry 0 (label b).
  Let la := entry 0 (label a).
  Let once : bool := same_reduction (step_reduction b a) Sum.
  Let all_devices (f : device -> bool) : bool := forallb f (range n).

  Definition check_moves : bool :=
    (count b =? count a) &&& ((count b =? 1) || same_reduction (reduced_by b) (reduced_by a)).

  Definition check_reduces : bool :=
    (count b =? 1) || (count a =? 1) || same_reduction (reduced_by b) (reduced_by a).

  (** Boxes of summands that are to be added up to a box: of each summand of [wanted] they cover it, in a sum once. *)
  Definition check_sum (wanted : list Z) (goal : box) (parts : list (box * Z)) : bool :=
    forallb (fun part => mem (snd part) wanted) parts &&&
    forallb (fun k =>
      let boxes := map fst (filter (fun part => snd part =? k) parts) in
      covered goal boxes &&& (negb once ||| pairwise apart boxes)) wanted.

  (** Groups of [m] make summand [j] of the summands from [j * m] on. *)
  Definition uniform (m : Z) : list Z := map (Z.mul m) (range (count a + 1)).

  Definition makes_all (splits : list Z) : bool :=
    forallb (is_device (count b + 1)) splits &&& (entry 0 splits (count a) =? count b) &&&
    same (concat (map (run_of splits) (range (count a)))) (range (count b)).

  Definition check_group (part : list device -> device -> point) (splits : list Z) (g : list device) : bool :=
    forallb (fun d => permutes (map lb g) (run_of splits (la d)) &&&
      let inner := part g d in
      (len inner =? len s) &&& forallb (Z.leb 0) inner &&& all2 Z.leb (plus inner ta) tb &&&
      forallb (fun m => same (plus (ob m) inner) (oa d)) g) g.

  Definition check_reduction (parts : Z -> Z) (part : list device -> device -> point) (groups : list (list device)) : bool :=
    let m := len (hd [] groups) in
    check_reduces &&& check_groups (range n) groups &&& (count b =? m * count a) &&&
    divides ta tb &&& (prod (quotient tb ta) =? parts m) &&&
    makes_all (uniform m) &&& forallb (check_group part (uniform m)) groups.

  Definition check_part_travel (h : share) : bool :=
    is_device n (src h) &&& is_device n (dst h) &&&
    (len (corner h) =? len s) &&& (len (extent h) =? len s) &&& forallb (Z.leb 1) (extent h) &&&
    within (share_box h) (box_at (ob (src h)) tb) &&& within (share_box h) (box_at (oa (dst h)) ta).

  Definition check_arriving (shares : list share) (splits : list Z) (d : device) : bool :=
    let wanted := run_of splits (la d) in
    let own := if mem (lb d) wanted then [(box_at (ob d) tb, lb d)] else [] in
    check_sum wanted (box_at (oa d) ta) (own ++ map (fun h => (share_box h, lb (src h))) (to_device d shares)).

  Definition check_reduce_exchange (shares : list share) (splits : list Z) : bool :=
    check_reduces &&& (len splits =? count a + 1) &&& makes_all splits &&&
    forallb check_part_travel shares &&&
    forallb (check_round_number shares) shares &&&
    forallb (fun h => check_round n shares (round h)) shares &&&
    all_devices (check_arriving shares splits).

  Definition same_tile (d e : device) : bool := same (oa e) (oa d).

  (** Who holds summand [j] of the tile of [d]. *)
  Definition holder (d : device) (j : Z) : option device :=
    find (fun e => (la e =? j) &&& same_tile d e) (range n).

  Definition content (keeps : list device) (e : device) : list (box * Z) :=
    if mem e keeps then [(box_at (ob e) tb, lb e)] else [].

  Definition made_of (keeps : list device) (d : device) (j : Z) : list (box * Z) :=
    match holder d j with Some e => content keeps e | None => [] end.

  Definition same_content (keeps : list device) (d e : device) : bool :=
    Bool.eqb (mem d keeps) (mem e keeps) &&& (negb (mem d keeps) ||| (lb d =? lb e) &&& same (ob d) (ob e)).

  Fixpoint rising (l : list Z) : bool :=
    match l with
    | x :: (y :: _) as r => (x <? y) &&& rising r
    | _ => true
    end.

  Definition check_unreduce (keeps : list device) : bool :=
    check_reduces &&& forallb (is_device n) keeps &&& rising keeps &&& divides tb ta &&&
    all_devices (fun d => within (box_at (ob d) tb) (box_at (oa d) ta)) &&&
    all_devices (fun d => match holder d (la d) with Some e => same_content keeps d e | None => false end) &&&
    all_devices (fun d =>
      check_sum (range (count b)) (box_at (oa d) ta) (concat (map (made_of keeps d) (range (count a))))).

  Definition check_paction (x : paction) : bool :=
    match x with
    | Move y => check_moves &&& check_action n (count b :: s) (stack b) (stack a) (stack_action b y)
    | ReduceScatter groups => check_reduction (fun m => m) (part_start tb ta) groups
    | AllReduce groups => check_reduction (fun _ => 1) (fun _ _ => map (fun _ => 0) tb) groups
    | ReduceExchange _ shares splits => check_reduce_exchange shares splits
    | Unreduce keeps => check_unreduce keeps
    end.
End Steps.

(** ** Plans *)

(** Summands are on all devices. *)
Definition check_all (m : mesh) : bool := partition (range (devices m)) (device_at m).

Definition check_pplacement (n : Z) (s : point) (p : pplacement) : bool :=
  (len (label p) =? n) &&& check_placement n s (tiles p) &&& check_placement n (count p :: s) (stack p) &&&
  forallb (has_tile (stack p)) (range n) &&&
  check_layout n (layout_of s p).

Section Plans.
  Variables (p : pplan) (limit : Z).
  Let n := pdevice_count p.
  Let s := parray_shape p.

  (** The steps are a path: each begins where the one before it ended, up to numbers of summands. *)
  Fixpoint check_ppath (y : layout) (ss : list pstep) : bool :=
    match ss with
    | [] => check_same_layout n y (ptarget_layout p)
    | x :: rest =>
        match lookup (pplacements p) (pbefore x), lookup (pplacements p) (pafter x) with
        | Some b, Some a =>
            check_same_layout n y (layout_of s b) &&&
            check_paction n s b a (pact x) &&& check_bound limit (tile_of s (tiles a)) &&&
            check_ppath (layout_of s a) rest
        | _, _ => false
        end
    end.

  Definition check_partial_plan_within : bool :=
    check_mesh (psource_mesh p) &&& check_mesh (ptarget_mesh p) &&&
    check_all (psource_mesh p) &&& check_all (ptarget_mesh p) &&&
    (devices (ptarget_mesh p) =? devices (psource_mesh p)) &&&
    check_type (psource_mesh p) (stack_type (psource_mesh p) (psource p)) &&&
    check_type (ptarget_mesh p) (stack_type (ptarget_mesh p) (ptarget p)) &&&
    same (global_shape (whole (ptarget p))) (global_shape (whole (psource p))) &&&
    check_bound limit (local_shape (whole (psource p))) &&&
    check_layout n (psource_layout p) &&& check_layout n (ptarget_layout p) &&&
    forallb (check_pplacement n s) (pplacements p) &&&
    check_ppath (psource_layout p) (psteps p).
End Plans.

(** As the library's [verify] without a bound of one's own: no tile above the larger of source and target. *)
Definition check_partial_plan (p : pplan) : bool := check_partial_plan_within p (plarger_end p).
